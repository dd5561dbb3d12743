"""`python -m fenceline.pipeline.embedded`: a worker process."""

import sys

from fenceline.pipeline.embedded.worker_process import main

sys.exit(main())
