/** `top`: what keys do, what is drawn, and that the terminal is left as it was. */
import { PassThrough } from 'node:stream';
import { stripVTControlCharacters } from 'node:util';
import * as fc from 'fast-check';
import t from 'tap';
import type { SortKey } from '../../src/admin/services.ts';
import { KpngError } from '../../src/errors.ts';
import { runTop } from '../../src/cli/admin/top/run.ts';
import { bars, cut, drawTop, roomFor } from '../../src/cli/admin/top/screen.ts';
import {
  type CallProxy,
  initialState,
  needsData,
  onKey,
  splitKeys,
  type TopData,
  type TopState,
} from '../../src/cli/admin/top/state.ts';
import { AdminScene, sceneViews, type SceneService, SHOP } from '../support/admin-scene.ts';
import { holds } from '../support/property.ts';
import { until } from '../support/until.ts';

const plain = (line: string): string => stripVTControlCharacters(line).trimEnd();

async function dataOf(
  services: readonly SceneService[] = SHOP,
  sort: SortKey = 'name',
  open?: string,
): Promise<TopData> {
  const { list, details: describe, status } = sceneViews(new AdminScene(services), 20);
  const [details] = open === undefined ? [] : await describe(open);
  return { status: await status(), services: await list({ sort }), details };
}

function press(state: TopState, ...keys: string[]): TopState {
  let now = state;
  for (const key of keys) {
    const next = onKey(now, key, { names: ['a', 'b', 'c'], height: 2 });
    if (next === undefined) throw new Error(`${key} quits`);
    now = next;
  }
  return now;
}

const [UP, DOWN, PAGE_DOWN] = ['\u001b[A', '\u001b[B', '\u001b[6~'];

/** Keys, and what they make of a list of three, of which two fit on the screen. */
const KEYS: readonly (readonly [keys: readonly string[], expected: Partial<TopState>])[] = [
  [['e'], { sort: 'errors', reverse: false }],
  [['e', 'e'], { sort: 'errors', reverse: true }],
  [['e', 'e', 'n'], { sort: 'name', reverse: false }],
  [['R'], { sort: 'connections', reverse: true }],
  [[DOWN, 'j'], { selected: 2 }],
  [['j', 'j', 'j', 'j'], { selected: 2 }],
  [['j', UP, 'k'], { selected: 0 }],
  [[PAGE_DOWN], { selected: 2 }],
  [['G', 'g'], { selected: 0 }],
  [['j', '\r'], { open: 'b' }],
  [['j', '\r', '\r'], { open: undefined }],
  [['f'], { state: 'traffic' }],
  [['f', 'f', 'f', 'f'], { state: 'all' }],
  [[' '], { paused: true }],
  [['?'], { help: true }],
  [['?', 'e'], { help: false, sort: 'connections' }],
  // A search takes the letters that are commands elsewhere.
  [['/', 'q', 'e', 'x', '\u007f', UP], { typing: true, search: 'qe', sort: 'connections' }],
  [['/', 'q', '\r'], { typing: false, search: 'q' }],
  [['/', 'q', '\u001b'], { typing: false, search: '' }],
  [['/', ...Array.from({ length: 300 }, () => 'x')], { search: 'x'.repeat(100) }],
];

t.test('keys sort, move, search, filter, pause, help and quit', async (t) => {
  const state = initialState({});
  for (const [keys, expected] of KEYS) t.match(press(state, ...keys), expected, keys.join(' '));
  for (const key of ['o', 'R', 'f', ' ', '\r']) {
    t.equal(needsData(state, press(state, key)), true, key);
  }
  for (const key of ['/', '?', 'x', DOWN]) t.notOk(needsData(state, press(state, key)), key);
  const quits = (from: TopState, key: string): boolean =>
    onKey(from, key, { names: [], height: 1 }) === undefined;
  for (const key of ['q', '\u0003', '\u0004']) t.ok(quits(state, key));
  t.ok(quits(press(state, '/'), '\u0003'), 'while it is typed, too');
});

t.test('terminal input is split into keys', async (t) => {
  const keys = ['a', '\u001b[A', '\u001b[6~', 'é', '\u001b'];
  t.strictSame(splitKeys(keys.join('')), keys);
});

const SCREEN = `
active 12 TCP 0 UDP 2 held   new 6/s   in 6 kB/s   out 90 kB/s   errors 1/s   service ports 4, 1 down, 1 degraded, 1 no-endpoints
1 of 4 listen addresses could not be opened (and 2 more: status)
SERVICE                                            STATE     ENDPTS ACTIVE ▼CONN/S    IN/S   OUT/S ERRORS 5 MINUTES
shop/cart:http                                     degraded     1/2      3      5    1 kB   90 kB     20               █
    ENDPOINT     STATE    ACTIVE  TOTAL    IN    OUT  CONNECT  ERRORS  LAST ERROR
    10.1.0.1:80  ready         3     30  3 kB  60 kB   0.8 ms       0
    10.1.0.2:80  failing       0      0   0 B    0 B        -       3  refused 5s ago, failing for 1m30s
data/db                                            down           1      9      1    5 kB    20 B      0               █
shop/cart:https                                    ok             1      0      0     0 B     0 B      0
shop/empty                                         no-endpts      0      0      0     0 B     0 B      0
q quit  ? help  / search  f filter  Enter endpoints   4
`;

t.test('a screen has totals, rows and the endpoints of the open service port', async (t) => {
  const data = await dataOf(SHOP, 'connections', 'shop/cart:http');
  const state = { ...initialState({}), open: 'shop/cart:http' };
  const [title, ...lines] = drawTop(data, state, { columns: 120, rows: 12 }).map(plain);
  const first = 'kpng-userspace degraded  node-1 · kube to-userspace · engine linux, portal nft';
  t.equal(title?.slice(0, first.length), first);
  t.strictSame(lines, SCREEN.trim().split('\n'));
});

t.test('a narrow terminal has fewer columns, and the selected row stays in sight', async (t) => {
  const many = Array.from({ length: 50 }, (_, index) => {
    return { name: `ns/svc-${String(index).padStart(2, '0')}`, address: '10.0.0.1', endpoints: [] };
  });
  const data = await dataOf(many);
  const state = { ...initialState({}), selected: 49 };
  const lines = drawTop(data, state, { columns: 80, rows: 12 }).map(plain);
  t.match(lines[3], /CONN\/S +IN\/S +OUT\/S +ERRORS$/);
  t.notMatch(lines[3], /MINUTES|ADDRESS/);
  t.ok(lines.some((line) => line.startsWith('ns/svc-49')));
  t.equal(roomFor({ columns: 80, rows: 12 }), 7);
});

t.test('at 80 columns a name is complete, or shows its beginning and end', async (t) => {
  const names = ['kube-system/coredns:dns', 'kube-system/metrics-server-internal:https'];
  const data = await dataOf(names.map((name) => ({ name, address: '10.0.0.1', endpoints: [] })));
  const lines = drawTop(data, initialState({}), { columns: 80, rows: 24 });
  const shown = lines.map((line) => plain(line).slice(0, 26).trim());
  t.strictSame(shown.slice(4, 6), ['kube-system/coredns:dns', 'kube-system/m…ternal:https']);
});

t.test('whatever the size, the names and the keys: a screen fits', async (t) => {
  const data = await dataOf([
    { name: `ns/${'long-'.repeat(40)}`, address: '10.0.0.1', endpoints: ['10.1.0.1:80'] },
    { name: 'ns/\u001b[2Jevil\u0007', address: '10.0.0.2', endpoints: [] },
    ...SHOP,
  ]);
  const names = data.services.rows.map(({ name }) => name);
  const key = fc.constantFrom(...splitKeys('jkef/\r\u001b? xG'), PAGE_DOWN);
  const upTo = (max: number) => fc.integer({ min: 1, max });
  const presses = fc.array(key, { maxLength: 12 });
  const property = fc.property(upTo(250), upTo(60), presses, (columns, rows, keys) => {
    let state = initialState({});
    for (const each of keys) {
      state = onKey(state, each, { names, height: roomFor({ columns, rows }) }) ?? state;
    }
    const lines = drawTop(data, state, { columns, rows });
    if (lines.length > rows) return false;
    return lines.every((line) => {
      const bare = plain(cut(line, columns));
      return bare.length <= columns && !/\p{Cc}/u.test(bare);
    });
  });
  holds(t, property);
});

t.test('bars are proportional to their values', async (t) => {
  t.equal(bars([0, 0, 1, 1, 8, 8]), ' ▂█');
  t.equal(bars([]), '');
});

/** `top` on a terminal that is none, and what it asks of the proxy. `before`: called for each question. */
async function startTop(flags: object, before: () => void = () => undefined) {
  const stdin = Object.assign(new PassThrough(), {
    isTTY: true,
    raw: false,
    setRawMode(raw: boolean) {
      stdin.raw = raw;
      return stdin;
    },
  });
  const size = { isTTY: true, columns: 100, rows: 12, text: '' };
  const stdout = Object.assign(new PassThrough(), size);
  stdout.setEncoding('utf8').on('data', (part: string) => (stdout.text += part));
  const data = await dataOf();
  const asked: Record<string, string>[] = [];
  const callProxy: CallProxy = async (operation, input = {}) => {
    before();
    if (operation === 'status') return data.status;
    asked.push(input);
    if (operation === 'services') return data.services;
    throw new KpngError('KPNG_ADMIN_REFUSED', 'it is gone');
  };
  const parts = { stdin, stdout, stderr: new PassThrough() };
  const terminal = parts as unknown as Parameters<typeof runTop>[2];
  const ended = runTop({ ...flags }, callProxy, terminal);
  /** What the last full screen shows. */
  const screen = () => screenOf(stdout.text);
  return { stdin, stdout, asked, ended, screen };
}

function screenOf(text: string): string {
  // oxlint-disable-next-line no-control-regex
  return (text.split('\u001b[H').at(-1) ?? '').replace(/\u001b\[[\d;?]*[a-zA-Z]/g, '');
}

t.test('on a terminal, it follows keys and resizes, and restores the screen', async (t) => {
  const { stdin, stdout, asked, ended, screen } = await startTop({ interval: 60_000 });
  await until(() => stdout.text.includes('q quit'));
  t.equal(stdin.raw, true);
  t.ok(stdout.text.startsWith('\u001b[?1049h\u001b[?25l'), 'another screen, no cursor');
  stdin.write('e');
  await until(() => asked.length === 2);
  t.match(asked[1], { sort: 'errors', order: 'normal' }, 'asked at once, not after the interval');
  stdin.write('/cart');
  await until(() => asked.at(-1)?.['search'] === 'cart');
  t.match(screen(), /search: cart/);
  stdout.columns = 40;
  stdout.rows = 8;
  stdout.emit('resize');
  await until(() => screen().split('\r\n').length === 8);
  t.notMatch(screen(), /.{41}/);
  stdin.write('\u001b');
  const before = asked.length;
  stdin.write('qe');
  t.equal(await ended, 0);
  t.ok(asked.length <= before + 1, 'nothing is asked or followed after q');
  t.equal(stdin.raw, false);
  t.ok(stdout.text.endsWith('\u001b[?25h\u001b[?1049l'), 'the screen of the shell, its cursor');
  t.equal(stdout.listenerCount('resize'), 0);
});

t.test('a proxy that stops answering is queried again; a signal ends it at once', async (t) => {
  let fails = false;
  const { stdin, stdout, asked, ended, screen } = await startTop({ interval: 10 }, () => {
    if (fails) throw new Error('no one is there');
  });
  await until(() => stdout.text.includes('q quit'));
  stdin.write('\r');
  await until(() => asked.some(({ name }) => name !== undefined));
  t.notMatch(screen(), /it is gone/, 'a service port that is gone is no failure');
  fails = true;
  await until(() => screen().includes('no one is there'));
  t.match(screen(), /^kpng-userspace down /);
  fails = false;
  await until(() => !screen().includes('no one is there'));
  const before = asked.length;
  process.listeners('SIGTERM').at(-1)?.('SIGTERM');
  t.equal(await ended, 0);
  t.equal(asked.length, before, 'no last question');
  t.ok(stdout.text.endsWith('\u001b[?1049l'));
});

t.test('without a terminal, or once, it prints plain text', async (t) => {
  const { stdout, ended } = await startTop({ once: true });
  t.equal(await ended, 0);
  t.notOk(stdout.text.includes('\u001b'));
  t.match(stdout.text, /^kpng-userspace degraded[^]*SERVICE[^]*shop\/cart:http/);
});
