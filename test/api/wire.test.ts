import * as fc from 'fast-check';
import t from 'tap';
import { RESET_FRAME, SYNC_FRAME, deleteFrame, setFrame } from '../../src/api/frames.ts';
import { Endpoint, OpItem, Service } from '../../src/api/generated/localv1/api.ts';
import { type Shape, wireProblem } from '../../src/api/wire.ts';
import { itemsOf } from '../support/api-rig.ts';
import { holds } from '../support/property.ts';

const SHAPE: Shape = { 1: 'text', 2: { 1: 'text', 3: {} } };

function problem(hex: string): string | undefined {
  return wireProblem(Buffer.from(hex, 'hex'), SHAPE);
}

t.test('well-formed messages pass', async (t) => {
  for (const [name, hex] of [
    ['empty', ''],
    ['text', '0a026869'],
    ['empty nested message', '1200'],
    ['nested', '12040a026869'],
    ['varint', '18ffffffffffffffffff01'],
    ['fixed', '4d01020304490102030405060708'],
    ['any bytes in a field that is not known', '5202ffff'],
  ] as const) {
    t.equal(problem(hex), undefined, name);
  }
});

t.test('finds what the decoder would misread', async (t) => {
  for (const [hex, message] of [
    ['00', /no field number at byte 0/],
    ['0a02686900', /no field number at byte 4/],
    ['12020000', /in field 2: no field number/],
    ['120100', /in field 2/],
    ['12030a0568', /in field 2: field 1 is longer/],
    ['0a05', /field 1 is longer than its message/],
    ['0affffffff7f', /field 1 is longer/],
    ['0a', /cut off in field 1/],
    ['0aff', /cut off in field 1/],
    ['18ff', /cut off in field 3/],
    ['18ffffffffffffffffffff01', /cut off in field 3/],
    ['4d0102', /cut off in field 9/],
    ['490102', /cut off in field 9/],
    ['ff', /no field number at byte 0/],
    ['8a8080808001', /no field number at byte 0/],
    ['0b', /field 1 has the wire type 3/],
    ['0c', /field 1 has the wire type 4/],
    ['0f', /field 1 has the wire type 7/],
    ['0a01ff', /field 1 is not UTF-8/],
    ['12030a01ff', /in field 2: field 1 is not UTF-8/],
  ] as const) {
    t.match(problem(hex), message, hex);
  }
});

t.test('a message of many empty parts is refused, as they would use much memory', async (t) => {
  const part = Buffer.from('1200', 'hex');
  const parts = (count: number) => problem(Buffer.concat(Array(count).fill(part)).toString('hex'));
  t.equal(parts(200_000), undefined);
  t.match(parts(200_001), /more than 200000 fields/);
});

const hex = (frame: Buffer): string => frame.toString('hex');
const framed = (message: string): string =>
  `00${(message.length / 2).toString(16).padStart(8, '0')}${message}`;

t.test('V1 (kept): Sync and Reset', async (t) => {
  t.equal(hex(SYNC_FRAME), framed('0a00'));
  t.equal(hex(RESET_FRAME), framed('2200'));
});

t.test('V1 (kept): Set and Delete', async (t) => {
  const web = Service.encode(
    Service.fromPartial({
      namespace: 'demo',
      name: 'web',
      type: 'ClusterIP',
      ips: { clusterIPs: { v4: ['10.96.0.10'] }, externalIPs: {} },
      ports: [{ name: 'http', protocol: 1, port: 80, targetPort: 8080 }],
    }),
  ).finish();
  t.equal(
    hex(setFrame(1, 'demo/web', web)),
    framed(
      '12470a0c0801120864656d6f2f77656212370a0464656d6f12037765621a09436c7573746572495022100a0c0a0a' +
        '31302e39362e302e31301200320d0a04687474701001185028903f',
    ),
  );
  const pod = Endpoint.fromPartial({
    ips: { v4: ['10.1.0.5'] },
    local: true,
    portOverrides: [{ name: 'http', port: 8080 }],
    scopes: { internal: true, external: true },
  });
  t.equal(
    hex(setFrame(2, 'demo/web/web-0', Endpoint.encode(pod).finish())),
    framed(
      '12350a120802120e64656d6f2f7765622f7765622d30121f120a0a0831302e312e302e35180122090a0468747470' +
        '10903f2a0408011001',
    ),
  );
  t.equal(
    hex(deleteFrame(2, 'demo/web/web-0')),
    framed('1a120802120e64656d6f2f7765622f7765622d30'),
  );
});

t.test('frames are what the encoder of the messages makes, in a row as well', async (t) => {
  holds(
    t,
    fc.property(
      fc.constantFrom(1, 2, 10, 11, 12),
      fc.string({ unit: 'grapheme', maxLength: 200 }),
      fc.uint8Array({ maxLength: 300 }),
      (set, path, bytes) => {
        const number = set as 1;
        const value = { ref: { set: number, path }, bytes: Buffer.from(bytes) };
        const items = [
          OpItem.fromPartial({ op: { $case: 'set', value } }),
          OpItem.fromPartial({ op: { $case: 'delete', value: { set: number, path } } }),
        ];
        const frames = [setFrame(set, path, bytes), deleteFrame(set, path)];
        return items.every((item, i) => {
          const message = frames[i]?.subarray(5) ?? Buffer.alloc(0);
          const again = itemsOf(frames[i] ?? Buffer.alloc(0));
          return (
            again.length === 1 &&
            Buffer.from(OpItem.encode(again[0] ?? item).finish()).equals(
              OpItem.encode(item).finish(),
            ) &&
            OpItem.decode(message).op?.$case === item.op?.$case
          );
        });
      },
    ),
  );
});
