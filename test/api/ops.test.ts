import t, { type Test } from 'tap';
import { Endpoint, OpItem, Service, WatchReq } from '../../src/api/generated/localv1/api.ts';
import { decodeLocalOp, type InvalidOp, type LocalOp } from '../../src/api/ops.ts';
import {
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
const WEB_0 = '120a0a0831302e312e302e35180122090a046874747010903f2a0408011001';

const decode = (item: OpItem): LocalOp => decodeLocalOp(OpItem.encode(item).finish());

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}

function unhex(text: string): Buffer {
  return Buffer.from(text, 'hex');
}

t.test('V1 (kept): messages are encoded byte for byte as kpng does', async (t) => {
  t.equal(hex(WatchReq.encode({ nodeName: 'node-a' }).finish()), '0a066e6f64652d61');
  t.equal(hex(OpItem.encode(sync).finish()), '0a00');
  t.equal(hex(OpItem.encode(reset).finish()), '2200');
  t.equal(hex(Service.encode(web).finish()), WEB);
  t.equal(
    hex(OpItem.encode(setService(web)).finish()),
    `12470a0c0801120864656d6f2f7765621237${WEB}`,
  );
  const atNode = Endpoint.fromPartial({ ...web0, scopes: { internal: true, external: true } });
  t.equal(hex(Endpoint.encode(atNode).finish()), WEB_0);
  t.equal(
    hex(OpItem.encode(setEndpoint('demo/web/web-0', atNode)).finish()),
    `12350a120802120e64656d6f2f7765622f7765622d30121f${WEB_0}`,
  );
  t.equal(
    hex(
      OpItem.encode({
        op: { $case: 'delete', value: { set: 2, path: 'demo/web/web-0' } },
      }).finish(),
    ),
    '1a120802120e64656d6f2f7765622f7765622d30',
  );
});

t.test('V1 (kept): recorded bytes decode', async (t) => {
  t.strictSame(decodeLocalOp(unhex('0a00')), { kind: 'sync' });
  t.strictSame(decodeLocalOp(unhex('2200')), { kind: 'reset' });
  const set = decodeLocalOp(unhex(`12470a0c0801120864656d6f2f7765621237${WEB}`));
  t.strictSame(set, { kind: 'setService', key: 'demo/web', service: web });
  if (set.kind === 'setService') {
    t.strictSame(set.service.ips?.externalIPs, { v4: [], v6: [] }, 'an empty part is present');
    t.equal(set.service.ips?.loadBalancerIPs, undefined, 'an absent one is not');
  }
  t.strictSame(decodeLocalOp(unhex(`12350a120802120e64656d6f2f7765622f7765622d30121f${WEB_0}`)), {
    kind: 'setEndpoint',
    key: 'demo/web',
    endpointKey: 'web-0',
    endpoint: web0,
  });
  t.strictSame(decodeLocalOp(unhex('1a120802120e64656d6f2f7765622f7765622d30')), {
    kind: 'deleteEndpoint',
    key: 'demo/web',
    endpointKey: 'web-0',
  });
  t.strictSame(decodeLocalOp(unhex('1a0c0801120864656d6f2f776562')), {
    kind: 'deleteService',
    key: 'demo/web',
  });
});

function invalid(t: Test, op: LocalOp): InvalidOp {
  if (op.kind !== 'invalid') throw new Error(`taken as ${op.kind}`);
  t.equal(op.error.code, 'KPNG_OP_INVALID');
  return op;
}

t.test('an unusable operation is reported with its set and path', async (t) => {
  const bytes = Service.encode(web).finish();
  const service = { kind: 'service', service: 'demo/web' };
  const cases: [string, OpItem, RegExp, unknown][] = [
    ['cut off', setBytes(1, 'demo/web', bytes.subarray(0, 30)), /"demo\/web".*longer/, service],
    ['zeros', setBytes(1, 'demo/web', Buffer.alloc(3)), /"demo\/web".*field number/, service],
    [
      'other name',
      setService(web, 'demo/other'),
      /"demo\/other".*calls itself "demo\/web"/,
      {
        kind: 'service',
        service: 'demo/other',
      },
    ],
    ['no bytes', setBytes(1, 'demo/web', Buffer.alloc(0)), /calls itself "\/"/, service],
    [
      'endpoint',
      setBytes(2, 'demo/web/web-0', unhex('1205')),
      /"demo\/web\/web-0"/,
      {
        kind: 'endpoint',
        service: 'demo/web',
        endpoint: 'web-0',
      },
    ],
    ['set 7', setBytes(7, 'demo/web', bytes), /"demo\/web".*set 7/, undefined],
    ['global set', setBytes(10, 'demo|web||', bytes), /set 10/, undefined],
    ['service path', setBytes(1, 'web', bytes), /service.*"web".*namespace\/name/, undefined],
    ['endpoint path', setBytes(2, 'demo/web', bytes), /endpoint.*"demo\/web"/, undefined],
    [
      'delete path',
      { op: { $case: 'delete', value: { set: 2, path: 'x' } } },
      /Delete.*"x"/,
      undefined,
    ],
    ['delete set', { op: { $case: 'delete', value: { set: 0, path: 'x' } } }, /set 0/, undefined],
    [
      'no ref',
      { op: { $case: 'set', value: { ref: undefined, bytes: Buffer.alloc(0) } } },
      /set 0/,
      undefined,
    ],
    ['no kind', { op: undefined }, /Unknown kind/, undefined],
  ];
  for (const [name, item, message, target] of cases) {
    t.test(name, async (t) => {
      const op = invalid(t, decode(item));
      t.match(op.error.message, message);
      t.strictSame(op.target, target);
    });
  }
});

t.test('bytes that are not an operation are refused', async (t) => {
  for (const text of ['00', '12', '12ff', '0b', '1202ffff', '0affffffffffffffffffff01', '220100']) {
    t.match(invalid(t, decodeLocalOp(unhex(text))).error.message, /cannot be decoded/, text);
  }
  t.match(invalid(t, decodeLocalOp(Buffer.alloc(0))).error.message, /Unknown kind/);
});

t.test('a very long path does not fill the log', async (t) => {
  const op = invalid(t, decode(setBytes(1, 'x'.repeat(100_000), Buffer.alloc(0))));
  t.ok(op.error.message.length < 500);
});

t.test('names and labels that look like parts of a JavaScript object are only text', async (t) => {
  const labels = JSON.parse('{"constructor":"a","toString":"b","hasOwnProperty":"c"}');
  const odd = service('__proto__/constructor', { labels });
  const op = decode(setService(odd));
  t.strictSame(op, { kind: 'setService', key: '__proto__/constructor', service: odd });
  t.strictSame(Object.keys((op as { service: Service }).service.labels), Object.keys(labels));
  // A label called __proto__ cannot exist in Kubernetes; a server that sends one changes nothing.
  const entry = `420f0a095f5f70726f746f5f5f12026869`;
  const proto = decode(setBytes(1, 'demo/web', unhex(`${WEB}${entry}`)));
  t.equal(proto.kind, 'setService');
  t.equal(Object.getPrototypeOf({}), Object.prototype);
  t.equal(({} as Record<string, unknown>)['hi'], undefined);
});

t.test('fields of later versions are ignored', async (t) => {
  const more = unhex(`${WEB}fa060568656c6c6ff80601fd0601020304f9060102030405060708`);
  t.strictSame(decode(setBytes(1, 'demo/web', more)), {
    kind: 'setService',
    key: 'demo/web',
    service: web,
  });
});
