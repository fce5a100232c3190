"""Train with Lightning. Its Trainer detects the workers that a launcher such as torchrun has started."""
import warnings

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        x, y = batch
        self.loss = ((self.layer(x) - y) ** 2).mean()
        return self.loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


lightning.seed_everything(0, verbose=False)
data = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8)
trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=3, logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False)
model = Model()
trainer.fit(model, data)
loss = trainer.strategy.reduce(model.loss.detach(), reduce_op="mean")
if trainer.is_global_zero:
    print(f"result loss {loss.item():.9f} workers {trainer.world_size}")
torch.distributed.destroy_process_group()
