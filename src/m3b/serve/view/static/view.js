// The list of runs: how many are chosen for the comparison.
(() => {
  "use strict";

  const button = document.getElementById("compare");
  if (!button) return;
  const boxes = [...document.querySelectorAll("input[name=run]")];
  const update = () => {
    const count = boxes.filter((box) => box.checked).length;
    button.disabled = count < 2 || count > 6;
    document.getElementById("chosen").textContent =
      count > 6 ? `${count} chosen; at most 6 can be compared.` : count < 2 ? "Choose two to six." : `${count} chosen.`;
  };
  boxes.forEach((box) => box.addEventListener("change", update));
  update();
})();
