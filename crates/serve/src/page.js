
"use strict";
document.addEventListener("click", event => {
  const button = event.target.closest(".command button");
  if (!button) return;
  const code = button.parentElement.querySelector("code");
  const done = () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500); };
  const select = () => getSelection().selectAllChildren(code);
  if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, select); else select();
});
setInterval(async () => {
  if (document.hidden || !getSelection().isCollapsed) return;
  try {
    const answer = await fetch("/", { cache: "no-store" });
    const main = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    if (answer.ok && main) document.querySelector("main").replaceWith(main);
  } catch { /* the server is away: the old content stays */ }
}, 5000);
