import t, { type Test } from 'tap';
import { EndpointInfo, NodeInfo, ServiceInfo } from '../../src/api/generated/globalv1/api.ts';
import { OpItem, Service, WatchReq } from '../../src/api/generated/localv1/api.ts';
import { decodeOp } from '../../src/api/ops.ts';
import { comparePaths } from '../../src/api/paths.ts';
import {
  deletePath,
  endpoint,
  reset,
  service,
  setBytes,
  setEndpoint,
  setService,
  sync,
} from '../support/messages.ts';

const web = service('demo/web', {
  ips: { clusterIPs: { v4: ['10.96.0.10'] }, externalIPs: {} },
  ports: [{ name: 'http', protocol: 1, port: 80, targetPort: 8080 }],
});
const web0 = endpoint('10.1.0.5', {
  local: true,
  portOverrides: [{ name: 'http', port: 8080 }],
});

const WEB =
  '0a0464656d6f12037765621a09436c7573746572495022100a0c0a0a31302e39362e302e31301200320d0a04687474701001185028903f';
const WEB_REF = { table: 'services', key: 'demo/web' };
const WEB_0_REF = { table: 'demo/web', key: 'web-0' };
const WEB_0 = '120a0a0831302e312e302e35180122090a046874747010903f2a0408011001';

const decode = (item: OpItem) => decodeOp('local', OpItem.encode(item).finish());

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}

function unhex(text: string): Buffer {
  return Buffer.from(text, 'hex');
}

t.test('V1 (kept): operations are encoded and decoded byte for byte as by kpng', async (t) => {
  t.equal(hex(WatchReq.encode({ nodeName: 'node-a' }).finish()), '0a066e6f64652d61');
  for (const [bytes, item, op] of [
    ['0a00', sync, { kind: 'sync' }],
    ['2200', reset, { kind: 'reset' }],
    [
      `12470a0c0801120864656d6f2f7765621237${WEB}`,
      setService(web),
      { kind: 'entry', entry: WEB_REF, value: web },
    ],
    [
      `12350a120802120e64656d6f2f7765622f7765622d30121f${WEB_0}`,
      setEndpoint('demo/web/web-0', web0),
      { kind: 'entry', entry: WEB_0_REF, value: web0 },
    ],
    [
      '1a120802120e64656d6f2f7765622f7765622d30',
      deletePath(2, 'demo/web/web-0'),
      { kind: 'entry', entry: WEB_0_REF, value: undefined },
    ],
    [
      '1a0c0801120864656d6f2f776562',
      deletePath(1, 'demo/web'),
      { kind: 'entry', entry: WEB_REF, value: undefined },
    ],
  ] as const) {
    t.equal(hex(OpItem.encode(item).finish()), bytes);
    t.strictSame(decodeOp('local', unhex(bytes)), op);
  }
});

const decodeGlobal = (item: OpItem) => decodeOp('global', OpItem.encode(item).finish());

const globalWeb = ServiceInfo.encode({ hash: 7n, service: web }).finish();
const POD = EndpointInfo.fromPartial({
  namespace: 'demo',
  serviceName: 'web',
  sourceName: 'web-abcde',
  podName: 'web-0',
  endpoint: { ips: { v4: ['10.0.0.1'] } },
});
const info = EndpointInfo.encode(POD).finish();
const node = NodeInfo.encode(NodeInfo.fromPartial({ node: { name: 'n1' } })).finish();

t.test('entries of the three sets of the global API', async (t) => {
  for (const [set, path, bytes, table, key, value] of [
    [10, 'demo|web||', globalWeb, 'services', 'demo/web', web],
    [11, 'demo|web|web-abcde|3d2c', info, 'demo|web|web-abcde', '3d2c', POD],
    [12, '|n1||', node, 'nodes', 'n1', { name: 'n1' }],
  ] as const) {
    const entry = { table, key };
    t.match(decodeGlobal(setBytes(set, path, bytes)), { kind: 'entry', entry, value });
    t.match(decodeGlobal(deletePath(set, path)), { kind: 'entry', entry, value: undefined });
  }
});

/** Checks that an operation is invalid. */
function isInvalid(t: Test, op: ReturnType<typeof decode>, message: RegExp, entry?: unknown): void {
  t.match(op, { kind: 'invalid', error: { code: 'KPNG_OP_INVALID', message } });
  t.strictSame('entry' in op && op.entry, entry);
}

t.test('an unusable operation is reported with its set and path', async (t) => {
  const bytes = Service.encode(web).finish();
  const none = Buffer.alloc(0);
  const other = { table: 'services', key: 'demo/other' };
  for (const [item, message, of] of [
    [setBytes(1, 'demo/web', bytes.subarray(0, 30)), /"demo\/web".*premature EOF/, WEB_REF],
    [setBytes(1, 'demo/web', Buffer.alloc(3)), /"demo\/web".*field no 0/, WEB_REF],
    [setService(web, 'demo/other'), /"demo\/other".*calls itself "demo\/web"/, other],
    [setBytes(1, 'demo/web', none), /calls itself "\/"/, WEB_REF],
    [setBytes(2, 'demo/web/web-0', unhex('1205')), /"demo\/web\/web-0"/, WEB_0_REF],
    [setBytes(7, 'demo/web', bytes), /"demo\/web".*set 7/],
    [setBytes(10, 'demo|web||', bytes), /set 10/],
    [deletePath(0, 'x'), /set 0/],
    [{ op: { $case: 'set', value: { ref: undefined, bytes: none } } }, /set 0/],
    [{ op: undefined }, /Unknown kind/],
  ] as [OpItem, RegExp, unknown?][]) {
    isInvalid(t, decode(item), message, of);
  }
  for (const [item, message, entry] of [
    [setBytes(1, 'demo/web', bytes), /the set 1 does not belong to the global API/],
    [setBytes(10, 'demo|api||', globalWeb), /calls itself/, { key: 'demo/api' }],
    [setBytes(11, 'demo|api|web-abcde|1', info), /calls itself/, { table: 'demo|api|web-abcde' }],
    [setBytes(11, 'demo|web|other|1', info), /calls itself/, { table: 'demo|web|other' }],
    [setBytes(11, 'other|web|web-abcde|1', info), /calls itself/, { table: 'other|web|web-abcde' }],
    [
      setBytes(10, 'demo|web||', unhex('12030a0568')),
      /in field 2: in field 1/,
      { key: 'demo/web' },
    ],
    [setBytes(11, 'demo|web|s|1', unhex('32030a0568')), /in field 6: in field 1/, {}],
    [setBytes(12, '|n1||', unhex('12030a0568')), /in field 2: in field 1/, { key: 'n1' }],
    [setBytes(12, '|n2||', node), /node "\|n2\|\|": the node calls itself/, { key: 'n2' }],
  ] as [OpItem, RegExp, unknown?][]) {
    const op = decodeGlobal(item);
    t.match(op, { kind: 'invalid', error: { code: 'KPNG_OP_INVALID', message } });
    t.match('entry' in op && op.entry, entry);
  }
});

t.test('bytes that are not an operation are refused', async (t) => {
  for (const text of ['00', '12', '12ff', '0b', '1202ffff', '0affffffffffffffffffff01', '220100']) {
    isInvalid(t, decodeOp('local', unhex(text)), /cannot be decoded/);
  }
  isInvalid(t, decodeOp('local', Buffer.alloc(0)), /Unknown kind/);
});

t.test('a very long path does not fill the log', async (t) => {
  isInvalid(t, decode(setBytes(1, 'x'.repeat(100_000), Buffer.alloc(0))), /^.{1,499}$/);
});

t.test('names and labels that look like parts of a JavaScript object are only text', async (t) => {
  const labels = JSON.parse('{"constructor":"a","toString":"b","hasOwnProperty":"c"}');
  const odd = service('__proto__/constructor', { labels });
  const op = decode(setService(odd));
  t.strictSame(op, {
    kind: 'entry',
    entry: { table: 'services', key: '__proto__/constructor' },
    value: odd,
  });
  // A label called __proto__ cannot exist in Kubernetes; a server that sends one changes nothing.
  const entry = `420f0a095f5f70726f746f5f5f12026869`;
  const proto = decode(setBytes(1, 'demo/web', unhex(`${WEB}${entry}`)));
  t.equal(proto.kind, 'entry');
  t.equal(Object.getPrototypeOf({}), Object.prototype);
  t.equal(({} as Record<string, unknown>)['hi'], undefined);
});

t.test('fields of later versions are ignored', async (t) => {
  // One with bytes that are no text.
  const more = unhex(`${WEB}fa0602fffef80601fd0601020304f9060102030405060708`);
  t.strictSame(decode(setBytes(1, 'demo/web', more)), {
    kind: 'entry',
    entry: WEB_REF,
    value: web,
  });
});

t.test('paths of other sets are refused', async (t) => {
  t.match(decode(deletePath(2, 'a/b/c/d')), { entry: { table: 'a/b', key: 'c/d' } });
  for (const [set, form, ...paths] of [
    [1, 'namespace/name', '', '/', 'a', 'a/', '/a', 'a//b', 'a/b/c', 'a/b/', '//'],
    [
      2,
      'namespace/service/key',
      '',
      '/',
      'a',
      'a/b',
      'a/b/',
      '/b/c',
      'a//c',
      '//',
      '///',
      'a/b//c',
    ],
    [10, 'namespace|name||', '', 'a', 'a|b', 'a|b|', '|b||', 'a|||', 'a|b|c|', 'a|b||d', 'a|b|||'],
    [11, 'namespace|service|source|hash', '', 'a|b|c', '|b|c|d', 'a|b|c|', 'a|b|c|d|e'],
    [12, '|name||', '', 'a', '||||', '|||', 'x|a||', '|a|b|', '|a||b'],
  ] as const) {
    for (const path of paths) {
      for (const item of [deletePath(set, path), setBytes(set, path, Buffer.alloc(0))]) {
        const op = (set < 10 ? decode : decodeGlobal)(item);
        t.match(op, {
          kind: 'invalid',
          error: { message: `path ${JSON.stringify(path)} is not ${form}` },
        });
      }
    }
  }
});

t.test('V14 (kept): path order puts a service right before its endpoints', async (t) => {
  const paths = ['ns/aaa-udp', 'ns/aaa/b', 'ns/bbb', 'ns/aaa', 'ns/aaa/a', 'ns/aaa-udp/x'];
  t.strictSame(paths.sort(comparePaths), [
    'ns/aaa',
    'ns/aaa/a',
    'ns/aaa/b',
    'ns/aaa-udp',
    'ns/aaa-udp/x',
    'ns/bbb',
  ]);
  t.equal(comparePaths('a', 'a'), 0);
  t.ok(comparePaths('a', 'a/') < 0, 'the shorter first');
});
