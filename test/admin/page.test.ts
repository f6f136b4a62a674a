/** The status page: its document, and what it does in a real browser, on a make-believe proxy. */
import { createHash } from 'node:crypto';
import { Script } from 'node:vm';
import t, { type Test } from 'tap';
import { answerPage } from '../../src/admin/page.ts';
import { AdminScene, type SceneService } from '../support/admin-scene.ts';
import { Chromium, findChromium } from './chromium.ts';

const program = findChromium();
const skip = program === undefined ? 'no chromium on this machine' : false;
const options = { skip: process.platform === 'linux' ? skip : 'only on linux' };

const SHOP: readonly SceneService[] = [
  {
    name: 'shop/checkout:http',
    address: '10.96.0.1',
    endpoints: ['10.1.0.1:8080', '10.1.0.2:8080'],
    failing: ['10.1.0.2:8080'],
    traffic: () => ({ connections: 10, bytesIn: 2000, bytesOut: 50_000, active: 7 }),
  },
  { name: 'shop/cart:http', address: '10.96.0.2', endpoints: ['10.1.0.3:8080'] },
  { name: 'shop/<b>bold</b>', address: '10.96.0.3', endpoints: [], traffic: () => ({ held: 2 }) },
  {
    name: 'kube-system/dns:udp',
    protocol: 'UDP',
    address: '10.96.0.10',
    port: 53,
    endpoints: ['10.1.0.4:53'],
    traffic: () => ({ connections: 40, bytesIn: 4000, bytesOut: 9000, active: 3 }),
  },
];

const STATE = `document.getElementById('state').textContent`;

/** One browser serves all tests of the file, one page after the other. */
let browser: Promise<Chromium> | undefined;
t.teardown(async () => (await browser)?.close());

async function rig(t: Test, services: readonly SceneService[], seconds = 60) {
  const scene = new AdminScene(services);
  const admin = await scene.start({ page: true });
  t.teardown(() => admin.close());
  scene.pass(seconds);
  const url = await scene.pageUrl();
  browser ??= Chromium.start(program ?? '');
  const page = await browser;
  page.complaints.length = 0;
  page.requests.length = 0;
  await page.open(`${url}/`);
  await page.until(`document.querySelectorAll('tr.row').length > 0`);
  return { scene, admin, page, url };
}

/** The texts of the cells of a row, by the beginning of its name. */
function cells(page: Chromium, name: string): Promise<string[]> {
  return page.evaluate(`
    [...[...document.querySelectorAll('tr.row')].find((row) => row.cells[0].innerText.includes(${JSON.stringify(name)})).cells]
      .map((cell) => cell.innerText.trim())`);
}

function names(page: Chromium): Promise<string[]> {
  return page.evaluate(
    `[...document.querySelectorAll('tr.row button')].map((button) => button.dataset.name)`,
  );
}

/** Texts whose colour is too close to what is behind them: WCAG's formula, below 4.5. */
const CONTRAST = `(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const over = (top, under, alpha) => top.map((v, i) => v * alpha + under[i] * (1 - alpha));
  const low = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim() !== '');
    if (!own || node.closest('[hidden], .hidden, .skip, :disabled, script, style') || node.getClientRects().length === 0) continue;
    let back = [0, 0, 0, 0];
    let opacity = 1;
    for (let up = node; up !== null; up = up.parentElement) {
      const style = getComputedStyle(up);
      opacity *= Number(style.opacity);
      const [r, g, b, a = 1] = parse(style.backgroundColor);
      if (back[3] === 0 && a > 0) back = [r, g, b, 1];
    }
    const text = over(parse(getComputedStyle(node).color).slice(0, 3), back, opacity);
    const [a, b] = [light(text), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.push(node.className + ' ' + node.textContent.trim().slice(0, 30) + ' ' + ratio.toFixed(2));
  }
  return low;
})()`;

t.test('one document with style and script inside, and its policy allows just these', async (t) => {
  const { status, body, headers } = answerPage({ path: '/', method: 'GET' }) ?? {};
  t.equal(status, 200);
  const html = typeof body === 'string' ? body : '';
  const [, style = ''] = /<style>(.*)<\/style>/s.exec(html) ?? [];
  const [, script = ''] = /<script type="module">(.*)<\/script>/s.exec(html) ?? [];
  const policy = headers?.['content-security-policy'] ?? '';
  for (const [name, text] of Object.entries({ script, style })) {
    const hash = createHash('sha256').update(text).digest('base64');
    t.ok(policy.includes(`${name}-src 'sha256-${hash}';`), name);
  }
  t.match(policy, /default-src 'none'.*frame-ancestors 'none'/);
  t.notMatch(policy, /unsafe|\*/);
  t.notMatch(html, /https?:\/\/(?!www\.w3\.org\/2000\/svg)/, 'nothing from elsewhere');
  t.notMatch(html, /\sstyle="|\son\w+="/, 'no inline attributes, which the policy forbids');
  t.doesNotThrow(() => new Script(`(async () => {${script}})`), 'no name is used twice');
  t.notMatch(script, /^(?:import|export) /m);
  t.notMatch(script, /innerHTML|insertAdjacentHTML|document\.write|eval\(/, 'texts stay texts');
  t.equal(answerPage({ path: '/', method: 'POST' }), undefined);
  t.equal(answerPage({ path: '/index.html', method: 'GET' }), undefined);
});

t.test('shows totals, rates and states, readable and without errors', options, async (t) => {
  const { page, url } = await rig(t, SHOP);
  t.equal(await page.evaluate(STATE), 'degraded');
  const problems = await page.evaluate(`document.getElementById('problems').innerText`);
  t.match(problems, /1 problem\s+1 service port without a usable endpoint services-without-endp/);
  const row = 'shop/checkout:http|degraded|10.96.0.1:80|1 of 2|7|10|2 kB|50 kB|0|';
  t.equal((await cells(page, 'checkout')).join('|'), row);
  t.match(await cells(page, 'dns'), ['kube-system/dns:udp UDP', 'ok']);
  t.match(await cells(page, '<b>bold</b>'), ['shop/<b>bold</b>', 'no endpoints'], 'only a text');
  t.equal(await page.evaluate(`document.querySelectorAll('tr.row b b').length`), 0);
  const tiles = await page.evaluate<string>(`document.getElementById('tiles').innerText`);
  t.match(tiles, /Active\s+10\s+7 TCP of 100k · 3 UDP · 2 held/);
  t.match(tiles, /New connections\s+50\/s/);
  t.match(tiles, /To clients\s+59 kB\/s/);
  for (const scheme of ['dark', 'light'] as const) {
    await page.prefer(scheme);
    t.strictSame(await page.evaluate(CONTRAST), [], `${scheme}: 4.5 to 1 and more`);
  }
  t.strictSame(page.complaints, [], 'nothing that its policy forbids, no exception');
  const own = (asked: string) => asked.startsWith(url) || asked.startsWith('data:');
  t.ok(page.requests.every(own), `nothing from elsewhere: ${page.requests.join()}`);
});

t.test('the page is updated live, until the proxy does not answer', options, async (t) => {
  const { page, scene, admin } = await rig(t, SHOP);
  await scene.proxier.drain({ kind: 'service', service: 'shop/cart' });
  await page.until(`document.body.innerText.includes('shop/cart is drained.')`);
  t.match(await cells(page, 'cart'), ['shop/cart:http', 'drained', '10.96.0.2:80', '1']);
  await scene.proxier.undrain();
  await page.until(`!document.body.innerText.includes('shop/cart is drained.')`);
  scene.health.sourceNamed('Kubernetes API at https://10.0.0.1:6443', true);
  scene.health.failing('sourceLost', { code: 'KPNG_SOURCE_LOST' });
  await page.until(`document.body.innerText.includes('source-unreachable')`);
  const about = await page.evaluate(`document.getElementById('about').innerText`);
  t.match(
    about,
    /API at https:\/\/10\.0\.0\.1:6443 \(unreachable or invalid\), last change \d s ago/,
  );
  scene.isProxying = false;
  await page.until(`document.getElementById('services').getClientRects().length === 0`);
  t.equal(await page.evaluate(`document.getElementById('tiles').getClientRects().length`), 0);
  t.equal(await page.evaluate(STATE), 'degraded', 'a process that does not proxy');
  await admin.close();
  await page.until(`!document.getElementById('lost').hidden`);
  t.equal(await page.evaluate(STATE), 'down');
  t.match(await page.evaluate('document.title'), /^down: node-1$/);
  const lost = await page.evaluate(`document.getElementById('lost').textContent`);
  t.match(lost, /^No answer from the proxy since .*Retrying every 2 s\.$/);
});

t.test('a service port opens to its endpoints, history and errors', options, async (t) => {
  const { page } = await rig(t, SHOP, 300);
  await page.evaluate(`document.querySelector('button[data-name="shop/checkout:http"]').focus()`);
  await page.press('Enter');
  await page.until(`document.querySelector('tr.open .list')`);
  const text = await page.evaluate<string>(`document.querySelector('tr.open').innerText`);
  t.match(text, /10\.1\.0\.1:8080\s+ready\s+internal, external\s+7\s+70\s+7 kB\s+140 kB\s/);
  t.match(text, /\s0\.8 ms\s+0\s+–/);
  t.match(text, /10\.1\.0\.2:8080\s+failing\s.*\s3\s+refused 5 s ago, failing for 1 min 30 s/s);
  t.match(text, /to clients 50 kB\/s/);
  const points = `document.querySelector('tr.open path.stroke').getAttribute('d').split('L').length`;
  t.equal(await page.evaluate(points), 150, 'five minutes, every other second');
  t.equal(await page.evaluate(`document.activeElement.dataset.name`), 'shop/checkout:http');
  const expanded = `document.querySelector('[data-name="shop/checkout:http"]').ariaExpanded`;
  t.equal(await page.evaluate(expanded), 'true');
  await page.press('Escape');
  await page.until(`document.querySelector('tr.open') === null`);
});

t.test('by keyboard: search, sort, filter; CSV has what is left', options, async (t) => {
  const { page } = await rig(t, SHOP);
  await page.press('/');
  await page.type('10.96.0.1');
  await page.until(`document.querySelectorAll('tr.row').length === 2`);
  t.strictSame(await names(page), ['kube-system/dns:udp', 'shop/checkout:http'], 'by address');
  await page.press('Escape');
  await page.until(`document.querySelectorAll('tr.row').length === 4`);
  t.equal(await page.evaluate(`document.getElementById('search').value`), '');

  await page.evaluate(`document.querySelector('th[data-sort="connections"] button').focus()`);
  await page.press('Enter');
  await page.until(`document.querySelector('tr.row button').dataset.name.startsWith('kube-system')
    && document.querySelector('th[data-sort="connections"]').ariaSort === 'descending'`);
  await page.press('Enter');
  await page.until(
    `document.querySelector('th[data-sort="connections"]').ariaSort === 'ascending'`,
  );

  await page.evaluate(`document.querySelectorAll('#filters button')[2].click()`);
  await page.until(`document.querySelectorAll('tr.row').length === 2`);
  t.strictSame((await names(page)).sort(), ['shop/<b>bold</b>', 'shop/checkout:http'], 'not ok');
  const hash = await page.evaluate<string>('location.hash');
  t.match(hash, /state=problems/, 'the address reports what is shown');
  const link = `document.getElementById('csv')`;
  t.equal(await page.evaluate(`${link}.getAttribute('download')`), 'services.csv');
  const text = await page.evaluate<string>(`fetch(${link}.href).then((each) => each.text())`);
  const [head, ...lines] = text.trim().split('\r\n').sort();
  t.match(lines, [
    'shop/<b>bold</b>,TCP,no-endpoints,10.96.0.3:80,0,0,',
    'shop/checkout:http,TCP,degraded,10.96.0.1:80,1,2,',
  ]);
  t.match(head, /^service,protocol,state,addresses,endpoints_usable,endpoints_total,/);
  t.equal(lines.length, 2);
});

t.test('on a phone: tiles in a row, problems first, services as cards', options, async (t) => {
  const { page, url } = await rig(t, SHOP);
  await page.resize(390, 844);
  t.teardown(() => page.resize(1400, 900));
  await page.open('about:blank');
  await page.open(`${url}/`);
  await page.until(`document.querySelectorAll('tr.row').length > 0`);
  const boxes = (selector: string): Promise<{ top: number; left: number; width: number }[]> =>
    page.evaluate(`[...document.querySelectorAll(${JSON.stringify(selector)})].map((each) => {
      const { top, left, width } = each.getBoundingClientRect();
      return { top: Math.round(top), left, width };
    })`);
  t.equal(await page.evaluate('document.documentElement.scrollWidth'), 390, 'nothing sticks out');
  const tiles = await boxes('.tile');
  t.equal(tiles.length, 6);
  t.equal(new Set(tiles.map(({ top }) => top)).size, 1, 'one row');
  const [problems] = await boxes('#problems');
  const rows = await boxes('tr.row');
  t.ok((problems?.top ?? Infinity) < (tiles[0]?.top ?? 0), 'problems come first');
  t.ok((tiles[0]?.top ?? 0) < (rows[0]?.top ?? 0));
  t.ok(rows.every(({ left, width }) => left >= 0 && left + width <= 390));
  const [worst] = await names(page);
  t.equal(worst, 'shop/checkout:http', 'the worst first');
  const card = await page.evaluate<string>(`document.querySelector('tr.row').innerText`);
  t.match(card, /shop\/checkout:http\s+degraded/);
  const label = `getComputedStyle(document.querySelector('tr.row').cells[3], '::before').content`;
  t.equal(await page.evaluate(label), '"Endpoints"', 'each number has its title');
  await page.evaluate(`document.querySelector('tr.row button').click()`);
  await page.until(`document.querySelector('tr.open .list')`);
  t.equal(await page.evaluate('document.documentElement.scrollWidth'), 390, 'nor the details');
  t.strictSame(await page.evaluate(CONTRAST), [], 'readable');
});

t.test('many service ports: pages, found at once', options, async (t) => {
  const many = Array.from({ length: 1234 }, (_, index): SceneService => {
    const address = `10.100.${index >> 8}.${index & 255}`;
    const name = `ns/svc-${String(index).padStart(5, '0')}:http`;
    return { name, address, endpoints: [`10.1.0.1:${index + 1}`] };
  });
  const { page } = await rig(t, many, 4);
  t.equal(await page.evaluate(`document.getElementById('range').textContent`), '1–100 of 1,234');
  t.equal((await names(page)).length, 100);
  await page.evaluate(`document.getElementById('next').click()`);
  await page.until(`document.getElementById('range').textContent === '101–200 of 1,234'`);
  t.equal((await names(page))[0], 'ns/svc-00100:http');
  await page.press('/');
  await page.type('svc-00999');
  await page.until(`document.querySelectorAll('tr.row').length === 1`);
  t.strictSame(await names(page), ['ns/svc-00999:http']);
});
