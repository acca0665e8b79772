"""Makes `import deep_ep` find finegemm.deep_ep, or no longer; says what becomes of each name.

python -m finegemm.deep_ep --install [--force] [--target DIR]
python -m finegemm.deep_ep --uninstall [--target DIR]
python -m finegemm.deep_ep --names
"""

import sys

from . import names
from .install import alias

if __name__ == "__main__":
    sys.exit(alias.main(sys.argv[1:], names.table))
