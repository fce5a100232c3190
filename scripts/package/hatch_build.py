"""Give the wheel its tag: any Python 3, no ABI of Python, and the platform of the programs in it.

hatchling would choose a tag for every platform, because the package has no extension module.
"""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PlatformTag(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + os.environ["DDP_PLATFORM"]
