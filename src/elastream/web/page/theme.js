// Light, dark, or as the system has it. Not a module: it runs before anything is drawn, so nothing flashes.
(() => {
  const KEY = "elastream-theme";
  const THEMES = ["system", "light", "dark"];
  const SAID = { system: "as the system has them", light: "light", dark: "dark" };
  const kept = () => {
    try {
      const found = localStorage.getItem(KEY);
      return THEMES.includes(found) ? found : "system";
    } catch {
      return "system"; // a browser may refuse to keep anything
    }
  };
  let theme = kept();
  const apply = () => {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    button?.setAttribute("aria-label", `Colours: ${SAID[theme]}`);
    button?.setAttribute("title", `Colours: ${SAID[theme]}`);
  };
  apply();
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // it then lasts as long as the page
      }
      apply();
    });
  });
})();
