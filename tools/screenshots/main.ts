/**
 * `npm run screenshots`: writes the pictures in docs/img: the status page, light and dark, and `top`.
 *
 * They show a make-believe proxy whose traffic is the same each time. Needs a Chromium; where the font
 * Inter is installed (Debian: fonts-inter), it is used.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { drawTop } from '../../src/cli/admin/top/screen.ts';
import { initialState } from '../../src/cli/admin/top/state.ts';
import { AdminScene, sceneViews } from '../../test/support/admin-scene.ts';
import { Chromium, findChromium } from '../../test/admin/chromium.ts';
import { terminalSvg } from './ansi-svg.ts';
import { DRAINED, PROBLEMS, sceneServices } from './scene.ts';

const FOLDER = join(import.meta.dirname, '../../docs/img');
const SECONDS = 300;

async function scene(): Promise<AdminScene> {
  const made = new AdminScene(sceneServices(), PROBLEMS);
  await made.proxier.drain({ kind: 'service', service: DRAINED });
  made.health.sourceNamed('Kubernetes API at https://10.96.0.1', true);
  return made;
}

function write(name: string, content: string | Buffer): void {
  writeFileSync(join(FOLDER, name), content);
  process.stdout.write(`docs/img/${name}\n`);
}

async function page(program: string): Promise<void> {
  const made = await scene();
  const admin = await made.start({ page: true });
  const browser = await Chromium.start(program);
  try {
    made.pass(SECONDS);
    const url = await made.pageUrl();
    for (const scheme of ['light', 'dark'] as const) {
      await browser.prefer(scheme);
      const open = 'shop/checkout:http';
      await browser.resize(1360, 1000, 1.5);
      await browser.open('about:blank');
      await browser.open(`${url}/#sort=connections&open=${encodeURIComponent(open)}`);
      await browser.until(`document.querySelector('tr.open .chart')`);
      await browser.evaluate(`document.fonts.ready.then(() => true)`);
      write(`status-${scheme}.png`, await browser.screenshot());
    }
  } finally {
    await browser.close();
    await admin.close();
  }
}

async function top(): Promise<void> {
  const { list, details, status, sampler } = sceneViews(await scene(), SECONDS);
  const services = await list({ sort: 'connections' });
  const [open] = await details('shop/checkout:http');
  const selected = services.rows.findIndex(({ name }) => name === open?.name);
  const state = { ...initialState({}), selected, open: open?.name };
  const size = { columns: 124, rows: 28 };
  const found = await status();
  const process = { ...found.process, uptimeSeconds: 187_400, rssBytes: 131e6 };
  const shown = { status: { ...found, process }, services, details: open };
  write('top.svg', terminalSvg(drawTop(shown, state, size), size.columns, 'kpng-userspace top'));
  sampler.close();
}

const program = findChromium();
if (program === undefined) {
  process.stderr.write('There is no Chromium: apt install chromium-headless-shell\n');
  process.exitCode = 1;
} else {
  mkdirSync(FOLDER, { recursive: true });
  await top();
  await page(program);
}
