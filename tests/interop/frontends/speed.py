"""Train with DeepSpeed, stage 0, on Gloo."""
import os

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed  # noqa: E402
import torch  # noqa: E402

deepspeed.init_distributed("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
config = {"train_micro_batch_size_per_gpu": 8, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
x, y = torch.randn(64, 4), torch.randn(64, 1)
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
for step in range(12):
    at = (step * world + rank) * 8 % 64
    loss = ((engine(x[at:at + 8]) - y[at:at + 8]) ** 2).mean()
    engine.backward(loss)
    engine.step()
torch.distributed.all_reduce(loss.detach())
if rank == 0:
    print(f"result loss {loss.item():.9f} workers {world}")
torch.distributed.destroy_process_group()
