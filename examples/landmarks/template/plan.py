"""Write plan.json: python plan.py [--minutes M] [--steps N]"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--minutes", type=float, default=1.0)
parser.add_argument("--steps", type=int, default=120)
given = parser.parse_args()
plan = {"task": "landmarks", "size": 48, "batch": 8, "steps": given.steps, "lr": 0.01, "minutes": given.minutes}
Path("plan.json").write_text(json.dumps(plan, indent=1))
print(f"plan.json: {plan}")
