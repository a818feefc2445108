#!/bin/sh
# The whole project, in order. MINUTES is the wall time of the training.
set -e
python plan.py --minutes "${MINUTES:-10}"
python train.py
python export.py --out Deliver
