import * as fc from 'fast-check';
import t from 'tap';
import { deleteFrame, RESET_FRAME, setFrame, SYNC_FRAME } from '../../src/api/frames.ts';
import { Endpoint, OpItem, Service } from '../../src/api/generated/localv1/api.ts';
import { itemsOf } from '../support/frames.ts';
import { holds } from '../support/property.ts';

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
