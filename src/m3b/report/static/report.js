// The script of a report page: tables that sort and filter, curves, and pictures that enlarge.
// Without it everything on the page can still be read.
(() => {
  "use strict";

  const number = (text) => {
    const value = Number.parseFloat(text.replace(/,/g, ""));
    return Number.isNaN(value) ? null : value;
  };

  const compare = (left, right) => {
    const numbers = [number(left), number(right)];
    if (numbers[0] !== null && numbers[1] !== null) return numbers[0] - numbers[1];
    return left.localeCompare(right, undefined, { numeric: true });
  };

  const sortKey = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.sort ?? cell.textContent;
  };

  const makeSortable = (table) => {
    const body = table.tBodies[0];
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (head.tagName !== "TH") return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
        [...table.tHead.rows[0].cells].forEach((cell) => cell.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", direction);
        const sign = direction === "ascending" ? 1 : -1;
        const rows = [...body.rows];
        rows.sort((a, b) => sign * compare(sortKey(a, column), sortKey(b, column)));
        body.append(...rows);
      });
    });
  };

  const makeFilterable = (table) => {
    const field = document.createElement("input");
    field.type = "search";
    const label = document.createElement("label");
    label.className = "filter";
    const status = document.createElement("span");
    status.className = "quiet";
    status.setAttribute("role", "status");
    label.append("Filter ", field);
    const area = table.closest(".scroll") || table;
    area.before(label, status);
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        if (!row.hidden) shown += 1;
      }
      status.textContent = words.length ? ` ${shown} of ${table.tBodies[0].rows.length}` : "";
    });
  };

  const enlargePictures = () => {
    const dialog = document.getElementById("enlarged");
    if (!dialog) return;
    const [button, picture, caption] = [dialog.querySelector("button"), dialog.querySelector("img"), dialog.querySelector("p")];
    button.addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close();
    });
    for (const image of document.querySelectorAll("main figure img")) {
      const opener = document.createElement("button");
      opener.type = "button";
      opener.className = "enlarge";
      opener.setAttribute("aria-label", `Enlarge: ${image.alt}`);
      image.replaceWith(opener);
      opener.append(image);
      opener.addEventListener("click", () => {
        picture.src = image.src;
        picture.alt = image.alt;
        caption.textContent = image.alt;
        dialog.showModal();
      });
    }
  };

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const formatTick = (value) => (value === null ? "" : String(Number(value.toPrecision(6))));
  const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3]];

  const drawCurve = (area, curve, axis) => {
    const positions = [...new Set(curve.lines.flatMap((line) => line.x[axis]))].sort((a, b) => a - b);
    const values = curve.lines.map((line) => {
      const byPosition = new Map(line.x[axis].map((x, i) => [x, line.y[i]]));
      return positions.map((x) => (byPosition.has(x) ? byPosition.get(x) : undefined));
    });
    const title = curve.axes.find(([key]) => key === axis)[1];
    const quiet = colour("--quiet");
    const line = colour("--line");
    const options = {
      width: Math.max(area.clientWidth, 260),
      height: 260,
      scales: { x: { time: false } },
      axes: [
        { label: title, stroke: quiet, grid: { stroke: line, width: 1 }, ticks: { stroke: line } },
        { stroke: quiet, grid: { stroke: line, width: 1 }, ticks: { stroke: line }, size: 64, values: (_, ticks) => ticks.map(formatTick) },
      ],
      series: [
        { label: title },
        ...curve.lines.map((item, i) => ({
          label: item.name,
          stroke: colour(`--s${i % 8}`),
          width: 2,
          dash: DASHES[(i + Math.floor(i / 8)) % 4],
          spanGaps: true,
          points: { show: item.y.length < 40 },
          value: (_, value) => (value === null || value === undefined ? "–" : value.toPrecision(4)),
        })),
      ],
    };
    return new uPlot(options, [positions, ...values], area);
  };

  const showCurves = () => {
    const block = document.getElementById("curves");
    if (!block || typeof uPlot === "undefined") return;
    const curves = JSON.parse(block.textContent);
    const areas = [...document.querySelectorAll("[data-curve]")].map((holder) => {
      const area = document.createElement("div");
      area.className = "plot";
      holder.append(area);
      holder.classList.add("drawn");
      return area;
    });
    const axes = new Map(curves.flatMap((curve) => curve.axes));
    let plots = [];
    let chosen = [...axes.keys()][0];
    const draw = () => {
      plots.forEach((plot) => plot.destroy());
      plots = curves.map((curve, i) => {
        const axis = curve.axes.some(([key]) => key === chosen) ? chosen : curve.axes[0][0];
        return drawCurve(areas[i], curve, axis);
      });
    };
    const choice = document.getElementById("axis-choice");
    if (axes.size > 1) {
      const label = document.createElement("label");
      label.className = "filter";
      const select = document.createElement("select");
      for (const [key, title] of axes) select.append(new Option(title, key));
      select.addEventListener("change", () => {
        chosen = select.value;
        draw();
      });
      label.append("Axis ", select);
      const hint = document.createElement("span");
      hint.className = "quiet";
      hint.textContent = " Drag over a chart to zoom, double-click to zoom out.";
      choice.append(label, hint);
    }
    draw();
    let waiting = 0;
    window.addEventListener("resize", () => {
      clearTimeout(waiting);
      waiting = setTimeout(draw, 150);
    });
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  };

  globalThis.m3b = { drawCurve };
  document.querySelectorAll("table.sortable").forEach(makeSortable);
  document.querySelectorAll("table.filterable").forEach(makeFilterable);
  enlargePictures();
  showCurves();
})();
