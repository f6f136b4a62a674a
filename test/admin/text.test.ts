/** What the answers of the admin API look like in a terminal. */
import { PassThrough } from 'node:stream';
import t from 'tap';
import { parse } from 'yaml';
import type { ProxySubject } from '../../src/admin/subject.ts';
import { print, table, age, atMost, bytes, count } from '../../src/cli/admin/layout.ts';
import { TEXTS } from '../../src/cli/admin/tables.ts';
import { styled } from '../../src/cli/admin/top/screen.ts';
import { AdminScene, sceneViews, SHOP } from '../support/admin-scene.ts';

t.test('numbers have three digits and a unit', async (t) => {
  const counts = [0, 7, 0.25, 9.96, 12.34, 999, 999.6, 1250, 123_456, 31_400_000].map(count);
  t.equal(counts.join(), '0,7,0.3,10,12.3,999,1k,1.25k,123k,31.4M');
  const sizes = [0, 999, 1000, 117_000_000, 2.5e12].map(bytes);
  t.equal(sizes.join(), '0 B,999 B,1 kB,117 MB,2.5 TB');
  t.equal([0, 59.9, 185, 14_820, 1_047_600].map(age).join(), '0s,59s,3m05s,4h07m,12d03h');
  const bounds = [atMost(0.001, 5), atMost(2.5, 5), atMost(null, 5), atMost(null, 0)];
  t.equal(bounds.join(), '≤ 1 ms,≤ 2.5 s,> 2.5 s,-');
});

const STATUS = `
state          degraded
               1 of 4 listen addresses could not be opened (listeners-failed)
               no client gets through to 1 of 4 service ports (services-down)
               2 service ports without a usable endpoint (services-without-endpoints)
process        …, up …, … of memory
version        0.1.0, Node …, …
command        kube to-userspace, node node-1
source         the source, unreachable or invalid, last change 0s ago
log level      0
engine         linux, portal nftables
service ports  4, 1 degraded, 1 down, 2 no-endpoints
endpoints      4
listeners      3 open, 1 failed
active         12 TCP connections, 0 UDP sessions, 2 held
now            6 connections/s, 6 kB/s in, 90 kB/s out, 1 errors/s
total          120 connections, 120 kB in, 1.8 MB out, 20 errors
limits         max-connections 14 of 100000, max-udp-sessions 0 of 50000
drained        10.1.0.1:443 of shop/cart

Problems:
  cannot \u001b[31mlisten (KPNG_X)
`;

const SERVICES = `
SERVICE          PROTO  STATE         ADDRESS          ENDPOINTS  ACTIVE  CONN/S  IN/S  OUT/S  ERRORS
data/db          TCP    down          10.96.0.4:80           1/1       9       1  5 kB   20 B       0
shop/cart:http   TCP    degraded      10.96.0.2:80 +1        1/2       3       5  1 kB  90 kB      20
shop/cart:https  TCP    no-endpoints  10.96.0.2:443          0/1       0       0   0 B    0 B       0
shop/empty       TCP    no-endpoints  10.96.0.3:80           0/0       0       0   0 B    0 B       0
`;

const DETAILS = `
service port    shop/cart:http TCP
state           degraded
addresses       10.96.0.2:80, *:30080
affinity        none
active          3
now             5 connections/s, 1 kB/s in, 90 kB/s out, 1 errors/s
total           100 connections, 20 kB in, 1.8 MB out
connect times   50 % ≤ 1 ms, 99 % ≤ 5 ms
connect errors  20 refused
counted         retries 20

LISTENER      STATE      TRAFFIC   WHY
10.96.0.2:80  listening  internal

ENDPOINT     STATE    TRAFFIC             ACTIVE  TOTAL    IN    OUT  CONNECT  ERRORS  LAST ERROR
10.1.0.1:80  ready    internal, external       3     30  3 kB  60 kB   0.8 ms       0
10.1.0.2:80  failing  internal, external       0      0   0 B    0 B        -       3  refused 5s ago, failing for 1m30s

service port    data/db TCP
state           down
addresses       10.96.0.4:80
affinity        none
active          9
now             1 connections/s, 5 kB/s in, 20 B/s out, 0 errors/s
total           20 connections, 100 kB in, 400 B out
connect times   50 % ≤ 1 ms, 99 % ≤ 1 ms
connect errors  none
counted         nothing else

LISTENER      STATE   TRAFFIC   WHY
10.96.0.4:80  failed  internal  KPNG_LISTEN_ADDRESS_NOT_AVAILABLE EADDRNOTAVAIL

ENDPOINT       STATE    TRAFFIC             ACTIVE  TOTAL    IN     OUT  CONNECT  ERRORS  LAST ERROR
10.1.0.9:5432  drained  internal, external       9     90  9 kB  180 kB   0.8 ms       0

Problems:
  cannot \u001b[31mlisten (KPNG_X)
`;

t.test('the status, the list of services, and one service', async (t) => {
  const message = 'cannot \u001b[31mlisten';
  const problem = { code: 'KPNG_X', message, servicePort: 'data/db', count: 1 };
  const scene = new AdminScene(SHOP, [problem]);
  const { status, list, details } = sceneViews(scene, 20);
  scene.health.sourceNamed('the source', true);
  scene.health.failing('sourceLost', { code: 'KPNG_SOURCE_LOST' });
  const drained = { kind: 'endpoint', endpoint: '10.1.0.1:443', service: 'shop/cart' } as const;
  await scene.proxier.drain(drained);
  const shows = (lines: readonly string[], expected: string) =>
    t.strictSame(lines, expected.trim().split('\n'));
  const lines = TEXTS.status(await status());
  shows(lines.filter((line) => !/source-unreachable/.test(line)).map(constant), STATUS);
  shows(TEXTS.services(await list()), SERVICES);
  await scene.proxier.drain({ kind: 'endpoint', endpoint: '10.1.0.9:5432' });
  shows(TEXTS.service({ services: await details('shop/cart:http', 'data/db') }), DETAILS);
  const empty = TEXTS.service({ services: await details('shop/empty') });
  t.match(empty.join('\n'), /\ncounted +held 2, held total 2\n/);

  t.strictSame(TEXTS.services(await list({ limit: 1 })).slice(-2), ['', '1 shown of 4']);
  const found = TEXTS.services(await list({ search: 'cart' }));
  t.equal(found.at(-1), '2 shown of 2 found, of 4');
  const proxy = scene.subject.proxy() as ProxySubject;
  const holding = { ...proxy, limits: { ...proxy.limits, holdTimeoutMs: 1000 } };
  const held = TEXTS.status(await status({ proxy: () => holding })).join('\n');
  t.match(held, /\nlimits .*, max-held-connections 2 of 1000\n/);
  scene.health.change({ draining: true });
  const down = TEXTS.status(await status({ proxy: () => undefined })).join('\n');
  scene.health.change({ replacedBy: 4711 });
  t.match(TEXTS.status(await status()).join('\n'), /\nnew process +process 4711 takes the new /);
  t.match(down, /\n +drained; [^]*\nhealthz +503: drained\nreadyz +503: drained\nprocess /);
  t.notMatch(down, /\nservice ports/);
});

/** Without what is not the same everywhere. */
function constant(line: string): string {
  return line
    .replace(/^(process +)\d+, up \S+, \S+ \S+ of/, '$1…, up …, … of')
    .replace(/, Node .*/, ', Node …, …');
}

t.test('connections, and what is left out', async (t) => {
  const addresses = { servicePort: 'ns/a', client: '10.9.0.1:5', endpoint: '10.1.0.1:80' };
  const connection = { ...addresses, state: 'open', ageSeconds: 75, in: 1500, out: 2 } as const;
  const connections = [
    { ...connection, protocol: 'TCP' as const },
    { ...connection, protocol: 'UDP' as const },
  ];
  const lines = TEXTS.connections({ matched: 9, complete: false, connections });
  t.match(lines[1], /^ns\/a +TCP +10\.9\.0\.1:5 +10\.1\.0\.1:80 +open +1m15s +1\.5 kB +2 B$/);
  t.match(lines[2], /1\.5k pkt +2 pkt$/);
  t.equal(lines.at(-1), '2 shown of more than 9');
});

async function printed(form: 'table' | 'json' | 'yaml', value: unknown, lines: string[]) {
  const out = new PassThrough();
  await print(value, lines, form, out);
  return String(out.read());
}

t.test('prints a table, JSON or YAML; the reader may close early', async (t) => {
  const [value, lines] = [{ a: [1] }, ['one', 'two']];
  t.equal(await printed('table', value, lines), 'one\ntwo\n');
  t.strictSame(JSON.parse(await printed('json', value, lines)), value);
  t.equal(await printed('yaml', value, lines), 'a:\n  - 1\n');
  const gone = new PassThrough({ highWaterMark: 1 });
  const done = print({}, ['x'.repeat(100)], 'table', gone);
  gone.destroy(new Error('EPIPE'));
  await t.resolves(done);
});

t.test('names cannot control a terminal or change the direction of text', async (t) => {
  const name = 'a\u001b[2J\u009b1m\n\u202eb\u2066c\u200fd\u061ce\u2028f\u{e0001}';
  const escaped = String.raw`a\u001b[2J\u009b1m\u000a\u202eb\u2066c\u200fd\u061ce\u2028f\udb40\udc01`;
  const outcome = TEXTS.drain({ what: name, servicePorts: 1, active: 0 });
  t.ok((await printed('table', {}, outcome)).includes(escaped));
  for (const form of ['json', 'yaml'] as const) {
    const text = await printed(form, { name }, []);
    t.notMatch(text.replaceAll('\n', ''), /[\p{Cc}\p{Cf}\u2028]/u, form);
    t.strictSame(parse(text), { name }, `${form} means the same`);
  }
  t.match(table([{ title: 'X', cell: () => name }], [1]), ['X', escaped]);
  t.equal(styled([], name), escaped, 'in top');
});
