// The viewer of a case: a volume in NiiVue, or pictures with masks and boxes on them.
(() => {
  "use strict";

  const viewer = document.getElementById("viewer");
  if (!viewer) return;
  const SOURCES = { reference: "Reference", prediction: "Prediction" };
  const state = { opacity: 0.5, shown: { reference: true, prediction: true }, hiddenLabels: new Set() };

  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };

  const makeCheckbox = (text, checked, onChange, swatch) => {
    const box = make("input", { type: "checkbox", checked });
    box.addEventListener("change", () => onChange(box.checked));
    const label = make("label", {}, box);
    if (swatch) {
      const colour = make("span", { className: "swatch" });
      colour.style.background = swatch;
      label.append(colour);
    }
    label.append(text);
    return label;
  };

  const makeSlider = (text, minimum, maximum, step, value, onInput) => {
    const slider = make("input", { type: "range", min: minimum, max: maximum, step });
    slider.value = value;
    slider.addEventListener("input", () => onInput(Number(slider.value)));
    return [make("label", {}, text, slider), slider];
  };

  const makeSelect = (text, options, value, onChange) => {
    const select = make("select", {}, ...options.map(([key, title]) => new Option(title, key)));
    select.value = value;
    select.addEventListener("change", () => onChange(select.value));
    return make("label", {}, text, select);
  };

  const loadScript = (address) =>
    new Promise((resolve, reject) => {
      const script = make("script", { src: address });
      script.addEventListener("load", resolve);
      script.addEventListener("error", () => reject(new Error(`${address} could not be loaded`)));
      document.head.append(script);
    });

  const listSources = (images) =>
    Object.keys(SOURCES).filter((source) =>
      images.some((image) => [...image.layers, ...image.boxes].some((item) => item.source === source)));

  const makeOverlayControls = (data, redraw) => {
    const sources = listSources(data.images);
    const controls = make("div", { className: "controls" });
    if (!sources.length) return controls;
    const styles = data.images.some((image) => image.boxes.length) ? ["dashed", "solid"] : ["outline", "filled"];
    const toggles = sources.map((source) => {
      const style = sources.length > 1 ? ` (${styles[source === "reference" ? 0 : 1]})` : "";
      return makeCheckbox(SOURCES[source] + style, true, (checked) => {
        state.shown[source] = checked;
        redraw();
      });
    });
    controls.append(make("fieldset", {}, make("legend", { textContent: "Overlays" }), ...toggles));
    controls.append(makeSlider("Opacity ", 0, 1, 0.05, state.opacity, (value) => {
      state.opacity = value;
      redraw();
    })[0]);
    const classes = data.legend.map(([name, colour], number) =>
      makeCheckbox(name, true, (checked) => {
        if (checked) state.hiddenLabels.delete(number);
        else state.hiddenLabels.add(number);
        redraw();
      }, colour));
    controls.append(make("fieldset", {}, make("legend", { textContent: "Classes" }), ...classes));
    return controls;
  };

  // --- volumes ---------------------------------------------------------------------------------------------------

  const toColour = (text) => [1, 3, 5].map((start) => Number.parseInt(text.slice(start, start + 2), 16));

  const makeColourMap = (legend) => {
    const colours = legend.map(([, colour]) => toColour(colour));
    return {
      R: [0, ...colours.map((colour) => colour[0])],
      G: [0, ...colours.map((colour) => colour[1])],
      B: [0, ...colours.map((colour) => colour[2])],
      A: [0, ...colours.map((_, number) => (state.hiddenLabels.has(number) ? 0 : 255))],
      I: [0, ...colours.map((_, number) => number + 1)],
      labels: ["", ...legend.map(([name]) => name)],
    };
  };

  const PLANES = [["3", "three planes"], ["0", "axial"], ["1", "coronal"], ["2", "sagittal"], ["4", "3D"]];
  const AXIS_OF_PLANE = { 0: 2, 1: 1, 2: 0 };

  const showVolume = async (data, image, area) => {
    image.isCompared = listSources([image]).length > 1;
    image.layers.sort((a, b) => Object.keys(SOURCES).indexOf(b.source) - Object.keys(SOURCES).indexOf(a.source));
    await loadScript("/static/niivue.umd.js");
    const canvas = make("canvas", { tabIndex: 0 });
    canvas.setAttribute("aria-label", "The volume, slice by slice");
    const place = make("p", { className: "quiet place" });
    const view = new niivue.Niivue({
      backColor: [0.07, 0.08, 0.09, 1],
      crosshairColor: [0.9, 0.9, 0.9, 0.5],
      crosshairWidth: 0.12,
      isRadiologicalConvention: true,
      isOrientationTextVisible: image.isOriented,
      dragAndDropEnabled: false,
      multiplanarLayout: niivue.MULTIPLANAR_TYPE.AUTO,
      multiplanarShowRender: niivue.SHOW_RENDER.NEVER,
      logLevel: "error",
      loadingText: "",
    });
    const [sliderLabel, slider] = makeSlider("Slice ", 1, 1, 1, 1, (value) => moveTo(value));
    let plane = "3";
    const countSlices = () => view.volumes[0].dimsRAS[AXIS_OF_PLANE[plane] + 1];
    const moveTo = (value) => {
      view.scene.crosshairPos[AXIS_OF_PLANE[plane]] = (value - 0.5) / countSlices();
      view.drawScene();
      view.createOnLocationChange();
    };
    const updateSlider = () => {
      sliderLabel.hidden = !(plane in AXIS_OF_PLANE);
      if (sliderLabel.hidden) return;
      slider.max = countSlices();
      slider.value = Math.floor(view.scene.crosshairPos[AXIS_OF_PLANE[plane]] * countSlices()) + 1;
    };
    view.onLocationChange = (location) => {
      const [x, y, z] = location.vox;
      const values = location.values ? location.values.map((item) => item.value) : [];
      const names = values.slice(1).map((value, number) => {
        const name = (data.legend[value - 1] || [""])[0];
        return name ? `${SOURCES[image.layers[number].source]}: ${name}` : "";
      }).filter(Boolean);
      place.textContent = [`voxel ${x + 1}, ${y + 1}, ${z + 1}`, `value ${Number(values[0]?.toPrecision(5))}`, ...names].join(" · ");
      updateSlider();
    };
    const redraw = () => {
      view.volumes.slice(1).forEach((volume, number) => {
        volume.setColormapLabel(makeColourMap(data.legend));
        const { source } = image.layers[number];
        const strength = image.isCompared && source === "reference" ? 2 : 1;
        volume.opacity = state.shown[source] ? Math.min(1, strength * state.opacity) : 0;
      });
      view.updateGLVolume();
    };
    const controls = make("div", { className: "controls" },
      makeSelect("View ", PLANES, plane, (value) => {
        plane = value;
        view.setSliceType(Number(value));
        updateSlider();
      }), sliderLabel);
    area.append(controls, makeOverlayControls(data, redraw), make("div", { className: "volume" }, canvas), place);
    await view.attachToCanvas(canvas);
    await view.loadVolumes([
      { url: image.address, name: "image.nii.gz" },
      ...image.layers.map((layer, number) => ({ url: layer.address, name: `layer${number}.nii.gz`, opacity: state.opacity })),
    ]);
    view.setInterpolation(true);
    redraw();
    view.setSliceType(Number(plane));
    view.scene.crosshairPos = view.mm2frac(image.centre);
    view.drawScene();
    updateSlider();
    view.createOnLocationChange();
    viewer.view = view;
  };

  // --- pictures --------------------------------------------------------------------------------------------------

  const SVG = "http://www.w3.org/2000/svg";

  const makeBoxes = (image, legend, isCompared) => {
    const drawing = document.createElementNS(SVG, "svg");
    drawing.setAttribute("aria-hidden", "true");
    for (const box of image.boxes) {
      const group = document.createElementNS(SVG, "g");
      const [left, top, right, bottom] = box.corners.map((share) => `${100 * share}%`);
      const rectangle = document.createElementNS(SVG, "rect");
      const sides = { x: left, y: top, width: `${100 * (box.corners[2] - box.corners[0])}%`, height: `${100 * (box.corners[3] - box.corners[1])}%` };
      for (const [name, value] of Object.entries(sides)) rectangle.setAttribute(name, value);
      rectangle.setAttribute("stroke", legend[box.label][1]);
      if (isCompared && box.source === "reference") rectangle.setAttribute("class", "dashed");
      group.append(rectangle);
      if (box.score !== null) {
        const text = document.createElementNS(SVG, "text");
        text.setAttribute("x", left);
        text.setAttribute("y", top);
        text.setAttribute("dx", "3");
        text.setAttribute("dy", "14");
        text.setAttribute("fill", legend[box.label][1]);
        text.textContent = box.score.toFixed(2);
        group.append(text);
      }
      group.item = box;
      drawing.append(group);
    }
    return drawing;
  };

  const showPictures = async (data, area) => {
    const stack = make("div", { className: "picture-stack" });
    const caption = make("p", { className: "quiet place" });
    let zoom = 1;
    let number = 0;
    const resize = () => {
      const [width, height] = data.images[number].size;
      const fitting = Math.min(frame.clientWidth, (0.74 * window.innerHeight * width) / height);
      stack.style.width = `${Math.round(fitting * zoom)}px`;
    };
    const redraw = () => {
      for (const element of stack.querySelectorAll("img, g")) {
        if (!element.item) continue;
        element.style.display = state.shown[element.item.source] && !state.hiddenLabels.has(element.item.label) ? "" : "none";
        element.style.opacity = Math.min(1, 2 * state.opacity);
      }
    };
    const show = () => {
      const image = data.images[number];
      const [width, height] = image.size;
      const base = make("img", { src: image.address, width, height, alt: `The image of the case${image.title ? `, ${image.title}` : ""}` });
      const layers = image.layers.map((layer) => {
        const picture = make("img", { src: layer.address, alt: "" });
        picture.item = layer;
        return picture;
      });
      stack.replaceChildren(base, ...layers, makeBoxes(image, data.legend, listSources(data.images).length > 1));
      caption.textContent = image.title;
      resize();
      redraw();
    };
    const frame = make("div", { className: "picture-area", tabIndex: 0 }, stack);
    frame.setAttribute("role", "group");
    frame.setAttribute("aria-label", "The picture");
    const controls = make("div", { className: "controls" });
    if (data.images.length > 1) {
      controls.append(makeSlider("Image ", 1, data.images.length, 1, 1, (value) => {
        number = value - 1;
        show();
      })[0]);
    }
    controls.append(makeSlider("Zoom ", 1, 8, 0.25, 1, (value) => {
      zoom = value;
      resize();
    })[0]);
    area.append(controls, makeOverlayControls(data, redraw), frame, caption);
    window.addEventListener("resize", resize);
    show();
    await Promise.all([...stack.querySelectorAll("img")].map((picture) => picture.decode()));
  };

  // --- the page --------------------------------------------------------------------------------------------------

  const start = async () => {
    const status = viewer.querySelector("[role=status]");
    try {
      const response = await fetch(viewer.dataset.address);
      if (!response.ok) throw new Error(new DOMParser().parseFromString(await response.text(), "text/html").querySelector("h1")?.textContent || response.status);
      const data = await response.json();
      if (data.channels.length > 1) {
        const present = new URL(location.href).searchParams.get("channel") || "0";
        const options = data.channels.map((name, number) => [String(number), name]);
        viewer.append(make("div", { className: "controls" }, makeSelect("Channel ", options, present, (value) => {
          location.search = `?channel=${value}`;
        })));
      }
      if (data.images.length && data.images[0].isVolume) await showVolume(data, data.images[0], viewer);
      else if (data.images.length) await showPictures(data, viewer);
      if (data.notes.length) viewer.append(make("ul", { className: "quiet" }, ...data.notes.map((note) => make("li", { textContent: note }))));
      if (data.text) viewer.append(make("h2", { textContent: "Report of the case" }), make("p", { className: "text-value", textContent: data.text }));
      status.remove();
      viewer.dataset.state = "shown";
    } catch (error) {
      status.textContent = `The image cannot be shown: ${error.message}`;
      viewer.dataset.state = "failed";
    }
  };
  start();
})();
