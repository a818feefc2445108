"""Train the plan of plan.json for its steps; write Logout/best.safetensors and Logout/valid_predictions.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from Datapath.dataloader import build_datasets
from Model.network import build_model
from safetensors.torch import save_file

torch.manual_seed(0)
torch.set_num_threads(2)
plan = json.loads(Path("plan.json").read_text())
train, valid = build_datasets(plan)
model = build_model(plan)
optimizer = torch.optim.Adam(model.parameters(), lr=plan["lr"])
loader = torch.utils.data.DataLoader(train, batch_size=plan["batch"], shuffle=True, drop_last=True)
step = 0
while step < plan["steps"]:
    for batch in loader:
        optimizer.zero_grad()
        loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
        step += 1
model.eval()
with torch.no_grad():
    held = model(**torch.utils.data.default_collate(list(valid.items)))["loss"]
Path("Logout").mkdir(exist_ok=True)
save_file(model.state_dict(), "Logout/best.safetensors")
Path("Logout/valid_predictions.json").write_text(json.dumps([{"image": r["image_path"]} for r in valid.records]))
print(f"done: validation distance {float(held):.3f} of the picture's side after {step} steps")
