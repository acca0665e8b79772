"""Makes `import deep_gemm` find finegemm.deep_gemm, or no longer; says what becomes of each name.

python -m finegemm.deep_gemm --install [--force] [--target DIR]
python -m finegemm.deep_gemm --uninstall [--target DIR]
python -m finegemm.deep_gemm --names
"""

import sys

from . import names
from .install import alias

if __name__ == "__main__":
    sys.exit(alias.main(sys.argv[1:], names.table))
