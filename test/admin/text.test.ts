/** What the answers of the admin API look like in a terminal. */
import { PassThrough } from 'node:stream';
import t from 'tap';
import { parse } from 'yaml';
import type { ProxySubject } from '../../src/admin/subject.ts';
import { print, table, age, atMost, bytes, count } from '../../src/cli/admin/layout.ts';
import {
  connectionsText,
  detailsText,
  drainedText,
  servicesText,
  statusText,
} from '../../src/cli/admin/tables.ts';
import { ansiLine, piece, plainLine } from '../../src/cli/admin/top/styled.ts';
import { AdminScene, sceneViews } from '../support/admin-scene.ts';

function rig() {
  const scene = new AdminScene(
    [
      {
        name: 'shop/cart:http',
        address: '10.96.0.2',
        nodePort: 30_080,
        endpoints: ['10.1.0.1:80', '10.1.0.2:80'],
        failing: ['10.1.0.2:80'],
        traffic: () => ({ connections: 5, bytesIn: 1000, bytesOut: 90_000, refused: 1, active: 3 }),
      },
      { name: 'data/db', address: '10.96.0.4', endpoints: [], broken: true },
    ],
    [{ code: 'KPNG_X', message: 'cannot \u001b[31mlisten', servicePort: 'data/db', count: 1 }],
  );
  return { scene, ...sceneViews(scene, 20) };
}

t.test('numbers have three digits and a unit', (t) => {
  t.strictSame([0, 7, 0.25, 9.96, 12.34, 999, 999.6, 1250, 123_456, 31_400_000].map(count), [
    '0',
    '7',
    '0.3',
    '10',
    '12.3',
    '999',
    '1k',
    '1.25k',
    '123k',
    '31.4M',
  ]);
  t.strictSame([0, 999, 1000, 117_000_000, 2.5e12].map(bytes), [
    '0 B',
    '999 B',
    '1 kB',
    '117 MB',
    '2.5 TB',
  ]);
  t.strictSame([0, 59.9, 185, 14_820, 1_047_600].map(age), [
    '0s',
    '59s',
    '3m05s',
    '4h07m',
    '12d03h',
  ]);
  t.strictSame(
    [atMost(0.001, 5), atMost(2.5, 5), atMost(null, 5), atMost(null, 0)],
    ['≤ 1 ms', '≤ 2.5 s', '> 2.5 s', '-'],
  );
  t.end();
});

t.test('status in a few lines', async (t) => {
  const { scene, status } = rig();
  await scene.proxier.drain({ kind: 'endpoint', endpoint: '10.1.0.1:80', service: 'shop/cart' });
  const text = statusText(await status()).join('\n');
  t.match(
    text,
    /^state +down\n +no client gets through to 2 of 2 service ports \(services-down\)\n +1 of 2 listen addresses could not be opened \(listeners-failed\)\nprocess +\d+, up \S+, /,
  );
  t.match(text, /\ncommand +kube to-userspace, node node-1\nlog level /);
  t.match(text, /\nservice ports +2, 2 down\n/);
  t.match(text, /\nlisteners +1 open, 1 failed\nactive +3 TCP connections, 0 UDP sessions\n/);
  t.match(text, /\nnow +5 connections\/s, 1 kB\/s in, 90 kB\/s out, 1 errors\/s\n/);
  t.match(text, /\nlimits +max-connections 3 of 100000, /);
  t.match(text, /\ndrained +10\.1\.0\.1:80 of shop\/cart\n/);
  t.match(text, /\n\nProblems:\n {2}cannot .*listen \(KPNG_X\)$/);
  scene.health.change({ draining: true });
  t.match(
    statusText(await status()).join('\n'),
    /^state +down\n +drained; accepts no new connections \(drained\)\n(?:.*\n)+healthz +503: drained\nreadyz +503: drained\n/,
  );
  const none = await status({ proxy: () => undefined });
  t.notMatch(statusText(none).join('\n'), /\nservice ports/);
});

t.test('the list of services, and one service', async (t) => {
  const { list, details: describe } = rig();
  const all = servicesText(await list());
  t.strictSame(all.length, 3);
  t.match(all[0], /^SERVICE +PROTO +STATE +ADDRESS +ENDPOINTS +ACTIVE/);
  t.match(
    all[2],
    /^shop\/cart:http +TCP +degraded +10\.96\.0\.2:80 \+1 +1\/2 +3 +5 +1 kB +90 kB +20$/,
  );
  t.strictSame(servicesText(await list({ limit: 1 })).slice(-2), ['', '1 shown of 2']);
  const found = servicesText(await list({ search: 'cart', limit: 1 }));
  t.equal(found.at(-1), '1 shown of 1 found, of 2');
  const details = detailsText(await describe('shop/cart:http', 'data/db'));
  const text = details.join('\n');
  t.match(text, /^service port +shop\/cart:http TCP\nstate +degraded\n/);
  t.match(text, /\nconnect errors +20 refused\n/);
  t.match(
    text,
    /\n10\.1\.0\.2:80 +failing +internal, external +0 +0 +0 B +0 B +- +3 +refused 5s ago, failing for 1m30s\n/,
  );
  t.match(text, /failed +internal +KPNG_LISTEN_ADDRESS_NOT_AVAILABLE EADDRNOTAVAIL/);
});

t.test('clients that are held are reported, and count as connections', async (t) => {
  const scene = new AdminScene([
    { name: 'ns/idle', address: '10.96.0.6', endpoints: [], traffic: () => ({ held: 2 }) },
    {
      name: 'ns/busy',
      address: '10.96.0.7',
      endpoints: ['10.1.0.1:80'],
      traffic: () => ({ active: 3 }),
    },
  ]);
  const { status, details: describe } = sceneViews(scene, 2);
  const proxy = scene.subject.proxy() as ProxySubject;
  const holding = { ...proxy, limits: { ...proxy.limits, holdTimeoutMs: 1000 } };
  const text = async (now: ProxySubject): Promise<string> =>
    statusText(await status({ proxy: () => now })).join('\n');
  t.match(await text(holding), /\nactive +3 TCP connections, 0 UDP sessions, 2 held\n/);
  t.match(
    await text(holding),
    /\nlimits +max-connections 5 of 100000, .*, max-held-connections 2 of 1000$/,
  );
  t.notMatch(await text(proxy), /max-held-connections/, 'no limit of what is switched off');
  const details = detailsText(await describe('ns/idle'));
  t.match(details.join('\n'), /\ncounted +held 2, held total 2\n/);
});

t.test('connections, and what is left out', (t) => {
  const connection = {
    servicePort: 'ns/a',
    client: '10.9.0.1:5',
    endpoint: '10.1.0.1:80',
    state: 'open',
    ageSeconds: 75,
    in: 1500,
    out: 2,
  } as const;
  const lines = connectionsText({
    matched: 9,
    complete: false,
    connections: [
      { ...connection, protocol: 'TCP' },
      { ...connection, protocol: 'UDP' },
    ],
  });
  t.match(lines[1], /^ns\/a +TCP +10\.9\.0\.1:5 +10\.1\.0\.1:80 +open +1m15s +1\.5 kB +2 B$/);
  t.match(lines[2], /1\.5k pkt +2 pkt$/);
  t.equal(lines.at(-1), '2 shown of more than 9');
  t.end();
});

t.test('prints a table, JSON or YAML; the reader may close early', async (t) => {
  const printed = async (form: 'table' | 'json' | 'yaml'): Promise<string> => {
    const out = new PassThrough();
    await print({ a: [1] }, ['one', 'two'], form, out);
    return String(out.read());
  };
  t.equal(await printed('table'), 'one\ntwo\n');
  t.strictSame(JSON.parse(await printed('json')), { a: [1] });
  t.equal(await printed('yaml'), 'a:\n  - 1\n');
  const gone = new PassThrough({ highWaterMark: 1 });
  const done = print({}, ['x'.repeat(100)], 'table', gone);
  gone.destroy(new Error('EPIPE'));
  await t.resolves(done);
});

t.test('names cannot control a terminal or change the direction of text', async (t) => {
  const name = 'a\u001b[2J\u009b1m\n\u202eb\u2066c\u200fd\u061ce\u2028f\u{e0001}';
  const escaped = String.raw`a\u001b[2J\u009b1m\u000a\u202eb\u2066c\u200fd\u061ce\u2028f\udb40\udc01`;
  const printed = async (form: 'table' | 'json' | 'yaml', value: unknown): Promise<string> => {
    const out = new PassThrough();
    const outcome = { what: name, servicePorts: 1, active: 0 };
    await print(value, drainedText(outcome), form, out);
    return String(out.read());
  };
  t.ok((await printed('table', {})).includes(escaped));
  for (const form of ['json', 'yaml'] as const) {
    const text = await printed(form, { name });
    t.notMatch(text.replaceAll('\n', ''), /[\p{Cc}\p{Cf}\u2028]/u, form);
    t.strictSame(parse(text), { name }, `${form} means the same`);
  }
  t.match(table([{ title: 'X', cell: () => name }], [1]), ['X', escaped]);
  for (const line of [plainLine([piece(name)]), ansiLine([piece(name)], 200)])
    t.equal(line, escaped, 'in top');
});
