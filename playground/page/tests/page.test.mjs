// The page in a browser, served by the tool. ROCE names the tool, CHROMIUM the browser, SCREENSHOTS a directory for pictures.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const built = join(root, "target/playground/page");
const tool = process.env.ROCE ?? join(root, "target/debug/roce");
const pictures = process.env.SCREENSHOTS ?? join(root, "target/playground/screenshots");
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const example = join(root, "world/src/script/example.script");
const scratch = mkdtempSync(join(tmpdir(), "roce-playground-"));

let server, browser, context, page, address;
const foreign = [];
const faults = [];

before(async () => {
  mkdirSync(pictures, { recursive: true });
  server = spawn(tool, ["playground", "--port", "0", "--page", built], { stdio: ["ignore", "pipe", "inherit"] });
  for await (const line of createInterface({ input: server.stdout })) {
    address = line.trim();
    break;
  }
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
  context = await browser.newContext({ viewport: { width: 1360, height: 900 }, acceptDownloads: true, reducedMotion: "reduce" });
  page = await context.newPage();
  page.setDefaultTimeout(Number(process.env.PATIENCE ?? 60_000));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(address) && !url.startsWith("data:") && !url.startsWith("blob:")) foreign.push(url);
  });
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("console", (message) => message.type() === "error" && faults.push(message.text()));
});

after(async () => {
  await browser?.close();
  server?.kill();
  rmSync(scratch, { recursive: true, force: true });
});

const open = async (fragment) => {
  await page.goto("about:blank");
  await page.goto(`${address}#${fragment}`);
  await page.waitForSelector(".bar");
};
const button = (name) => page.getByRole("button", { name, exact: true });
const place = async () => {
  const [step, steps] = (await page.locator(".clock").innerText()).split(" ")[0].split("/").map(Number);
  return { step, steps };
};
const toEnd = async () => {
  if (await button("To the end").isEnabled()) await button("To the end").click();
  const { step, steps } = await place();
  assert.equal(step, steps);
  return steps;
};
// all that is shown of both ends and of the packets
const shown = () => page.evaluate(() => [...document.querySelectorAll(".ladder ol, .ends")].map((it) => it.innerText).join("\n"));
const scenarios = () => page.locator(".scenario option").evaluateAll((all) => all.map((it) => it.value));
const save = async (name) => {
  const [download] = await Promise.all([page.waitForEvent("download"), button("Export pcapng").click()]);
  const path = join(scratch, name);
  await download.saveAs(path);
  return path;
};
const picture = (name) => page.screenshot({ path: join(pictures, `${name}.png`) });

test("every scenario plays to its end, and a step back gives the same", async () => {
  await open("s=loss");
  for (const name of await scenarios()) {
    await open(`s=${name}`);
    if (name === "free") continue;
    const first = await shown();
    for (let count = 0; count < 4; count++) await button("Step one event").click();
    const fourth = await shown();
    assert.notEqual(fourth, first, name);
    const steps = await toEnd();
    assert.ok(steps > 3, name);
    assert.equal(await page.locator(".error:visible").count(), 0, name);
    await page.keyboard.press("Home");
    assert.equal(await shown(), first, name);
    for (let count = 0; count < 5; count++) await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowLeft");
    assert.equal((await place()).step, 4);
    assert.equal(await shown(), fourth, name);
  }
});

test("it plays by itself, and pauses", async () => {
  await open("s=send");
  await page.locator(".speed select").selectOption("20");
  await button("Play").click();
  await page.waitForFunction(() => Number(document.querySelector(".clock").innerText.split("/")[0]) > 3);
  await button("Pause").click();
  const { step } = await place();
  await page.waitForTimeout(300);
  assert.equal((await place()).step, step);
  await page.locator("h1").click();
  await page.keyboard.press(" ");
  await page.waitForFunction(() => document.querySelector(".clock").innerText.match(/^(\d+)\/\1 /));
});

test("a packet that is lost by a click is repaired by a NAK", async () => {
  await open("s=write");
  await toEnd();
  const unharmed = await page.locator("[data-end=b] .memory pre").innerText();
  assert.ok(!(await shown()).includes("NAK PSN sequence error"));
  await page.locator("li.sent [data-packet='0']").click();
  assert.ok(await page.getByRole("heading", { name: /^Packet 0/ }).isVisible());
  await button("✗ Lose").click();
  assert.equal(await page.locator("li.sent").count(), 1);
  await toEnd();
  const texts = await shown();
  assert.ok(texts.includes("NAK PSN sequence error") && texts.includes("is lost"));
  assert.equal(await page.locator("[data-end=b] .memory pre").innerText(), unharmed);
  assert.match(page.url(), /f=0:lose/);
  await button("Undo").click();
  await toEnd();
  assert.ok(!(await shown()).includes("NAK PSN sequence error"));
});

test("packets are dragged, and changed from the keyboard", async () => {
  await open("s=write&at=4");
  await page.locator("li.sent [data-packet='1']").dragTo(page.locator("[data-fate=lose]"));
  await toEnd();
  assert.ok((await shown()).includes("NAK PSN sequence error"));
  for (const [key, words] of [["x", "invariant CRC is wrong"], ["d", "a duplicate, response resent"], ["h", "an earlier packet is missing"]]) {
    await open("s=write&at=4");
    await page.locator("li.sent [data-packet='1']").focus();
    await page.keyboard.press("Enter");
    await page.keyboard.press(key);
    await toEnd();
    assert.ok((await shown()).includes(words), key);
  }
  await open("s=loss&f=2:pass");
  await toEnd();
  assert.equal(await page.locator("li.lost").count(), 0);
});

test("requests of one's own, and words for what is refused", async () => {
  await open("s=free");
  await page.locator("[data-op=write]").click();
  await toEnd();
  assert.ok((await shown()).includes("request 1000 completed: RdmaWrite"));
  assert.match(await page.locator("[data-end=b] .memory pre").innerText(), /abcdefghijklmnop/);
  await page.locator("[data-op=wrong-key]").click();
  await toEnd();
  const texts = await shown();
  assert.ok(texts.includes("NAK remote access error") && texts.includes("completed in error"), texts);
  assert.equal(await page.locator("[data-end=a] .state").innerText(), "ERR");
});

const editor = () => page.getByLabel("Script, a statement a line");
const scriptSaid = () => page.locator("#script-said").innerText();

test("a script is written, played, changed, and part of the link", async () => {
  await open("s=send");
  await page.locator(".scenario select").selectOption("script");
  assert.equal(await editor().inputValue(), readFileSync(example, "utf8"));
  assert.equal(await scriptSaid(), "What is played is this script.");
  const text = "say Loss & gain: 100 % + a name\nconnect rc mtu 256 # small\nlose packet 1\nA post write 1 bytes 600\nwait\nB post fetch-add 2 add 5";
  await editor().fill(text);
  assert.equal(await scriptSaid(), "Changed, and not yet played.");
  await button("Play this script").click();
  assert.equal(await scriptSaid(), "What is played is this script.");
  assert.equal((await place()).step, 0);
  await toEnd();
  const texts = await shown();
  for (const words of ["Loss & gain: 100 % + a name", "NAK for the gap at 101", "request 2 completed: FetchAdd"]) assert.ok(texts.includes(words), words);
  // the link has it all, and the page reads it again; it is written once the page has been drawn
  const { step } = await place();
  await page.waitForFunction((step) => location.hash.endsWith(`&at=${step}`), step);
  const link = page.url();
  await page.goto("about:blank");
  await page.goto(link);
  await page.waitForSelector(".bar");
  assert.equal(await editor().inputValue(), text);
  assert.equal(await shown(), texts);
  // back in time, and a packet changed by hand
  await page.locator("h1").click();
  await page.keyboard.press("Home");
  assert.equal(await page.locator("li.sent").count(), 0);
  await toEnd();
  await page.locator("li.sent [data-packet='1']").first().click();
  await button("✓ Let pass").click();
  await page.waitForFunction(() => location.hash.includes("&f=1:pass"));
  await toEnd();
  assert.ok(!(await shown()).includes("NAK"));
  // played anew without that
  await editor().fill(`${text}\nsay more`);
  await editor().press("Control+Enter");
  assert.match(await page.locator("p.said").innerText(), /taken back/);
  await page.waitForFunction(() => !location.hash.includes("&f="));
  await page.locator("h1").click();
  await page.keyboard.press("u");
  await page.waitForFunction((text) => document.querySelector("textarea").value === text, text);
  await page.waitForFunction(() => location.hash.includes("&f=1:pass"));
});

test("a mistake in a script has its line, and what could stand there", async () => {
  await open("s=script");
  const before = await shown();
  const text = "connect rc\nA post wriet 1\nwait";
  await editor().fill(text);
  assert.equal(await scriptSaid(), 'line 2: unknown operation: "wriet"; expected send, write, read, fetch-add, compare-swap');
  assert.equal(await editor().getAttribute("aria-invalid"), "true");
  assert.equal(await page.locator(".editor .wrong").innerText(), "2");
  // it is not played; the line is selected
  await editor().press("Control+Enter");
  const chosen = await editor().evaluate((it) => it.value.slice(it.selectionStart, it.selectionEnd));
  assert.equal(chosen, "A post wriet 1");
  assert.equal(await shown(), before);
  await page.keyboard.type("A post write 1");
  assert.equal(await scriptSaid(), "Changed, and not yet played.");
  await button("Back to what is played").click();
  assert.equal(await editor().inputValue(), readFileSync(example, "utf8"));
  // a link with a mistake
  await open(`s=script&script=${encodeURIComponent(text)}`);
  assert.match(await page.getByRole("alert").innerText(), /^line 2: /);
  await editor().fill("network delay 40us, drop 100%\nconnect rc\nA post write 1");
  await button("Play this script").click();
  assert.equal(await page.getByRole("alert").count(), 0);
  assert.ok(await page.locator("input[name=delay]").isDisabled());
  assert.match(await page.locator(".network .hint").innerText(), /delay 40us, drop 100%/);
  await toEnd();
  assert.ok((await page.locator("li.lost").count()) > 2);
});

test("four adapters: lanes, ends, requests and arrows of each", async () => {
  await open("s=incast");
  assert.equal(await page.locator(".ends > section").count(), 4);
  assert.deepEqual(await page.locator(".heads span").allInnerTexts(), ["A", "B", "C", "D"]);
  await toEnd();
  // each arrow begins and ends at the line of an end
  const lines = await page.locator(".arrows line.end").evaluateAll((all) => all.map((it) => Number(it.getAttribute("x1"))));
  assert.equal(lines.length, 4);
  const arrows = await page.locator(".arrow line").evaluateAll((all) => all.map((it) => ["x1", "x2"].map((name) => Number(it.getAttribute(name)))));
  const ways = new Set(arrows.map((ends) => ends.map((x) => lines.findIndex((line) => Math.abs(line - x) < 1)).join("-")));
  assert.deepEqual([...ways].sort(), ["3-0", "3-1", "3-2"]);
  assert.deepEqual(await page.locator(".flows span").allInnerTexts(), ["A", "B", "C"]);
  // a packet of C's that is lost, and a request of C's
  await open(`s=script&script=${encodeURIComponent("connect rc A B\nconnect rc C B\nC post write 1\nC set 0 to 7")}`);
  assert.equal(await page.locator(".ends > section").count(), 3);
  await toEnd();
  await page.locator("li.sent [data-packet='0']").click();
  assert.match(await page.locator("#packet").innerText(), /from C to B/);
  await button("✗ Lose").click();
  await toEnd();
  assert.equal(await page.locator("li.lost.at-c").count(), 1);
  await page.locator(".requests select").first().selectOption("c");
  await page.locator("[data-op=write]").click();
  await toEnd();
  assert.ok((await shown()).includes("C1: request 1000 completed: RdmaWrite"));
  await page.waitForFunction(() => /&p=\d+:c:0:write:2000/.test(location.hash));
});

test("sliders change the network, and the link has it all", async () => {
  await open("s=write");
  await page.locator("input[name=loss]").fill("30");
  await page.locator("input[name=delay]").fill("50");
  await page.locator("input[name=seed]").fill("9");
  await page.locator("input[name=seed]").press("Enter");
  await toEnd();
  const texts = await shown();
  assert.ok(texts.includes("is lost"), texts);
  const link = page.url();
  await page.goto("about:blank");
  await page.goto(link);
  await page.waitForSelector(".bar");
  assert.equal(await shown(), texts);
  await open("s=write&net=loss:500");
  assert.ok((await page.getByRole("alert").innerText()).includes("percentage"));
});

test("the links of the course lead where they say", async () => {
  const folder = join(root, "docs/course");
  const pages = readdirSync(folder).filter((name) => name.endsWith(".md"));
  const texts = pages.map((name) => readFileSync(join(folder, name), "utf8"));
  const links = texts.flatMap((text) => [...text.matchAll(/\]\(http:\/\/127\.0\.0\.1:8791\/#([^)]*)\)/g)]).map((match) => match[1]);
  assert.ok(links.length > 20);
  for (const link of new Set(links)) {
    await open(link);
    // what the page cannot read, it leaves out
    await page.waitForFunction((link) => location.hash === `#${link}`, link);
    assert.equal(await page.getByRole("alert").count(), 0, link);
  }
});

test("an export is what the tool writes, and Wireshark finds nothing malformed", async () => {
  await open("s=loss");
  for (const name of await scenarios()) {
    if (name === "free" || name === "bring-up") continue;
    await open(`s=${name}`);
    await toEnd();
    const path = await save(`${name}.pcapng`);
    const theirs = join(scratch, `${name}.tool.pcapng`);
    const what = name === "script" ? ["--script", example] : ["--scenario", name];
    execFileSync(tool, ["demo", ...what, "--pcap", theirs], { stdio: "ignore" });
    const [ours, tools] = [readFileSync(path), readFileSync(theirs)];
    assert.ok(ours.equals(tools), `${name}: ${ours.length} and ${tools.length} bytes`);
  }
  for (const name of ["loss", "cm", "ud", "atomics"]) {
    const read = (filter) => execFileSync("tshark", ["-r", join(scratch, `${name}.pcapng`), "-Y", filter], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
    assert.equal(read("_ws.malformed"), "", name);
    assert.ok(read("infiniband").split("\n").length > 2, name);
  }
});

test("captures of other adapters are explained", async () => {
  await open("s=send");
  const folder = join(root, "transport/tests/captures");
  const files = readdirSync(folder).filter((name) => /\.pcap(ng)?$/.test(name));
  assert.ok(files.length > 2);
  for (const name of files) {
    await page.locator("input[type=file]").setInputFiles(join(folder, name));
    await page.locator("#capture").getByText(name).waitFor();
    assert.ok((await page.locator(".seen li").count()) > 0, name);
  }
  await page.locator("input[type=file]").setInputFiles({ name: "no.pcap", mimeType: "text/plain", buffer: Buffer.from("nothing") });
  await page.getByText("no.pcap: the file is neither pcap nor pcapng").waitFor();
  await button("Close the capture").click();
});

test("nothing serious for accessibility, in light and dark, wide and narrow; nothing beside the window", async () => {
  for (const [name, width, height, colorScheme] of [
    ["wide", 1360, 900, "light"],
    ["wide-dark", 1360, 900, "dark"],
    ["phone", 360, 740, "light"],
    ["phone-dark", 360, 740, "dark"],
  ]) {
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme });
    for (const fragment of ["s=loss&at=13", "s=congestion&at=30", "s=incast&at=30", "s=free", "s=wrong-key&at=12", "s=script&at=12", "s=script&script=connect%20rc%0AA%20get%20it"]) {
      await open(fragment);
      const packets = page.locator("li.sent button.what");
      if (await packets.count()) await packets.last().click();
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wider <= 0, `${name} ${fragment}: ${wider} px too wide`);
      // what the page's own policy keeps out is let in by the browser's tools
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
      const serious = violations.filter((it) => it.impact === "serious" || it.impact === "critical");
      assert.deepEqual(serious.map((it) => [it.id, it.nodes.slice(0, 3).map((node) => `${node.html} ${node.failureSummary}`)]), [], `${name} ${fragment}`);
      if (/^s=(loss|cong|incast|script&at)/.test(fragment)) {
        await page.evaluate(() => scrollTo(0, 0));
        await picture(`${name}-${fragment.slice(2, 6)}`);
        await page.screenshot({ path: join(pictures, `${name}-${fragment.slice(2, 6)}-whole.png`), fullPage: true });
      }
    }
  }
  await page.setViewportSize({ width: 1360, height: 900 });
  await page.emulateMedia({ colorScheme: "light" });
});

test("it is there in less than a second, with nothing kept from before", async () => {
  const times = [];
  // the machine may be busy with something else once
  for (let count = 0; count < 5; count++) {
    const fresh = await browser.newContext();
    const other = await fresh.newPage();
    const start = performance.now();
    await other.goto(`${address}#s=loss&at=5`);
    await other.waitForSelector("li.sent");
    times.push(performance.now() - start);
    await fresh.close();
  }
  assert.ok(Math.min(...times) < 1000, `${times.map(Math.round)} ms`);
});

test("nothing from elsewhere, no error, and less than 1.5 MB", () => {
  assert.deepEqual(foreign, []);
  assert.deepEqual(faults, []);
  const size = (path) => statSync(path).isDirectory() ? readdirSync(path).reduce((sum, name) => sum + size(join(path, name)), 0) : statSync(path).size;
  assert.ok(size(built) < 1_500_000, `${size(built)} bytes`);
});
