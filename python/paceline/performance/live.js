"use strict";
// Reload the page when its file was rewritten; until then, show for how long frames are awaited.
(() => {
  const state = document.querySelector(".state");
  const written = state.dataset.written, every = 1000 * Number(state.dataset.every);
  const say = (text) => { state.querySelector(".waiting").textContent = text; };

  const waited = (now) => {
    const seconds = Math.round(now / 1000 - Number(written));
    const what = state.dataset.ended ? "Computing" : "Waiting for frames";
    if (1000 * seconds > Math.max(2 * every, 2000)) say(`${what} for ${seconds} s.`);
  };

  const look = async () => {
    let answer, text;
    try {
      answer = await fetch(location.pathname, {cache: "no-store"});
      text = await answer.text();
    } catch {
      say("The server does not answer. It ends with its command; index.html in the folder of the "
        + "results has the last ones.");
      setTimeout(look, every);
      return;
    }
    if (answer.ok && !text.includes(`data-written="${written}"`)) {
      location.reload();
    } else {
      waited(Date.parse(answer.headers.get("Date")));
      setTimeout(look, every);
    }
  };

  if (location.protocol.startsWith("http")) {
    setTimeout(look, every);
  } else { // a browser does not compare files
    waited(Date.now());
    setTimeout(() => location.reload(), every);
  }
})();
