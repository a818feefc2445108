// Follows a run: its events come from the server as they are written to the journal.
(() => {
  "use strict";

  const MAX_MESSAGES = 1000;
  const byId = (id) => document.getElementById(id);
  const main = byId("live");
  let charts = [];
  let plots = [];

  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  const STATES = { done: "done", working: "at work", ended: "ended early", waiting: "to come" };

  const showState = (state) => {
    const badge = byId("state");
    if (badge.textContent !== state.label) badge.textContent = state.label;
    badge.className = `badge large ${state.tone}`;
    const lines = state.lines.filter(Boolean);
    if (byId("now").textContent !== lines.join("")) byId("now").replaceChildren(...lines.map((line) => make("p", "", line)));
    const stages = (state.stages || []).map((stage) => {
      const item = make("li", stage.state, stage.title);
      item.append(make("small", "", ` ${STATES[stage.state]}`));
      return item;
    });
    byId("stages").replaceChildren(...stages);
    const share = byId("share");
    share.hidden = typeof state.share !== "number";
    if (!share.hidden) share.value = state.share;
  };

  const showMessage = (message) => {
    const item = make("li");
    item.append(make("time", "", message.time), make("span", message.tone ? `badge ${message.tone}` : "kind", message.label));
    item.append(make("span", "said", message.text));
    const list = byId("messages");
    list.prepend(item);
    while (list.children.length > MAX_MESSAGES) list.lastElementChild.remove();
    byId("no-messages").hidden = true;
  };

  const drawCurves = () => {
    plots.forEach((plot) => plot.destroy());
    const holder = byId("live-curves");
    holder.replaceChildren(
      ...charts.map((chart) => {
        const part = make("div", "curve drawn");
        part.append(make("p", "chart-title", chart.title), make("div", "plot"));
        return part;
      }),
    );
    plots = charts.map((chart, i) => globalThis.m3b.drawCurve(holder.children[i].lastElementChild, chart, chart.axes[0][0]));
  };

  const showOutput = (output) => {
    byId("output-part").hidden = !output.text;
    const area = byId("output");
    area.textContent = output.text;
    area.scrollTop = area.scrollHeight;
  };

  const source = new EventSource(main.dataset.events);
  const on = (name, act) => source.addEventListener(name, (event) => act(JSON.parse(event.data)));
  on("message", showMessage);
  on("state", showState);
  on("output", showOutput);
  on("curves", (value) => {
    charts = value;
    drawCurves();
  });
  on("end", (state) => {
    source.close();
    showState(state);
    showOutput({ text: "" });
    main.dataset.ended = "true";
  });
  source.addEventListener("error", () => {
    if (main.dataset.ended) return;
    const text =
      source.readyState === EventSource.CLOSED
        ? "The server does not show this run any more. Reload the page."
        : "The connection is interrupted. Is `m3b view` still running? This page tries again by itself.";
    byId("now").replaceChildren(make("p", "", text));
  });
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(drawCurves, 150);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCurves);
})();
