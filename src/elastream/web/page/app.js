// The newest window as it comes; the names in it are data and are shown as text.
const shown = document.getElementById("run");
const stream = new EventSource("api/v1/stream");
const show = (event) => {
  const { window: latest } = JSON.parse(event.data);
  if (latest) shown.textContent = JSON.stringify(latest, null, 2);
};
stream.addEventListener("run", show);
stream.addEventListener("update", show);
