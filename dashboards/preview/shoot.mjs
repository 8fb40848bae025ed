/**
 * Draws dashboards in headless Chromium: `node shoot.mjs JOBS.json`.
 *
 * Each job is `{url, picture, width, now, allowEmpty}`. Prints a line for each panel; ends with 1 if a panel is empty
 * (unless its title is in `allowEmpty`) or has an error, or if the page throws.
 */
import fs from 'node:fs';
import { chromium } from 'playwright-core';

const PATIENCE_MS = 60_000;
const SETTLE_MS = 800;
const TALLEST = 8000;

const jobs = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--disable-background-networking'],
});

let failures = 0;
for (const job of jobs) {
  failures += await shoot(job);
}
await browser.close();
process.exit(failures ? 1 : 0);

async function shoot({ url, picture, width, now, allowEmpty }) {
  const context = await browser.newContext({
    viewport: { width, height: 1200 },
    timezoneId: 'UTC',
    locale: 'en-US',
  });
  const page = await context.newPage();
  const thrown = new Set();
  page.on('pageerror', (error) => thrown.add(String(error.message)));
  // "25 minutes ago" is counted from the moment that the data ends.
  await page.clock.setFixedTime(now);
  await page.goto(url);
  const ready = () => {
    const panels = window.report?.();
    return panels?.length && panels.every((panel) => panel.error || ['Done', 'Error'].includes(panel.state));
  };
  // Data alone are no picture: a busy machine has them long before the panels are drawn.
  const drawn = () => {
    const bodies = [...document.querySelectorAll('[data-testid="data-testid panel content"]')];
    const something = (body) => body.querySelector('canvas, svg, [role="grid"]') || body.innerText.trim();
    return bodies.length === window.report?.().length && bodies.every(something);
  };
  let late = '';
  const waitFor = (what, condition) =>
    page.waitForFunction(condition, null, { timeout: PATIENCE_MS, polling: 200 }).catch(() => {
      late = `not ${what} after ${PATIENCE_MS / 1000} s`;
    });
  await waitFor('answered', ready);
  await page.waitForLoadState('networkidle');
  await showWhole(page, width);
  await waitFor('drawn', drawn);
  await page.waitForTimeout(SETTLE_MS);
  await page.screenshot({ path: picture });
  const panels = await page.evaluate(() => window.report?.() ?? []);
  await context.close();

  let failed = 0;
  console.log(`\n${picture}: ${panels.length} panels`);
  for (const panel of panels) {
    const empty = panel.rows === 0 && !allowEmpty.includes(panel.title);
    const verdict = panel.error ? `ERROR ${panel.error}` : empty ? 'EMPTY' : panel.rows === 0 ? 'empty' : 'ok';
    failed += panel.error || empty ? 1 : 0;
    console.log(`  ${verdict.padEnd(6)} ${panel.title} (${panel.type}): ${panel.series} series, ${panel.rows} rows`);
  }
  for (const message of [late, ...thrown].filter(Boolean)) {
    failed += 1;
    console.log(`  PAGE   ${message}`);
  }
  return failed + (panels.length ? 0 : 1);
}

/** Make the window as tall as the page. (A full-page screenshot would resize it while it is taken, and panels redraw.) */
async function showWhole(page, width) {
  for (let tall = 0; tall < TALLEST; ) {
    await page.waitForTimeout(SETTLE_MS);
    const height = await page.evaluate(() => document.documentElement.scrollHeight);
    if (height === tall) {
      return;
    }
    tall = height;
    await page.setViewportSize({ width, height });
  }
}
