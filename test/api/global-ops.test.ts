import t from 'tap';
import { EndpointInfo, NodeInfo, ServiceInfo } from '../../src/api/generated/globalv1/api.ts';
import { OpItem } from '../../src/api/generated/localv1/api.ts';
import { decodeGlobalOp, type GlobalOp } from '../../src/api/global-ops.ts';
import { deleteEndpoint, deletePath, reset, service, setBytes, sync } from '../support/messages.ts';

const decode = (item: OpItem): GlobalOp => decodeGlobalOp(OpItem.encode(item).finish());

const WEB = service('demo/web');
const web = ServiceInfo.encode({ hash: 7n, service: WEB }).finish();
const POD = EndpointInfo.fromPartial({
  namespace: 'demo',
  serviceName: 'web',
  sourceName: 'web-abcde',
  podName: 'web-0',
  endpoint: { ips: { v4: ['10.0.0.1'] } },
});
const pod = EndpointInfo.encode(POD).finish();
const node = NodeInfo.encode(NodeInfo.fromPartial({ node: { name: 'n1' } })).finish();

t.test('entries of the three sets', async (t) => {
  t.strictSame(decode(setBytes(10, 'demo|web||', web)), {
    kind: 'service',
    ref: { namespace: 'demo', name: 'web' },
    value: WEB,
  });
  t.match(decode(setBytes(11, 'demo|web|web-abcde|3d2c', pod)), {
    kind: 'endpoint',
    ref: { namespace: 'demo', serviceName: 'web', sourceName: 'web-abcde', key: '3d2c' },
    value: { podName: 'web-0' },
  });
  t.match(decode(setBytes(12, '|n1||', node)), { kind: 'node', ref: 'n1', value: { name: 'n1' } });
  const gone = (set: number, path: string): GlobalOp => decode(deletePath(set, path));
  t.match(gone(10, 'demo|web||'), { kind: 'service', value: undefined });
  t.match(gone(11, 'demo|web|s|1'), { kind: 'endpoint', value: undefined });
  t.match(gone(12, '|n1||'), { kind: 'node', ref: 'n1', value: undefined });
  t.strictSame(decode(reset), { kind: 'reset' });
  t.strictSame(decode(sync), { kind: 'sync' });
});

t.test('an unusable entry is reported with its set and path', async (t) => {
  for (const [item, problem, target] of [
    [setBytes(10, 'demo|web', web), /path "demo\|web" is not namespace\|name\|\|/, undefined],
    [setBytes(11, 'demo|web|x', pod), /is not namespace\|service\|source\|hash/, undefined],
    [setBytes(12, 'n1', node), /is not \|name\|\|/, undefined],
    [setBytes(1, 'demo/web', web), /the set 1 does not belong to the global API/, undefined],
    [deleteEndpoint('demo/web/x'), /the set 2 does not belong/, undefined],
    [setBytes(10, 'demo|api||', web), /the service has other names/, { kind: 'service' }],
    [setBytes(11, 'demo|api|web-abcde|1', pod), /has other names/, { kind: 'endpoint' }],
    [setBytes(11, 'demo|web|other|1', pod), /has other names/, { kind: 'endpoint' }],
    [setBytes(12, '|n2||', node), /has another name/, { kind: 'node', ref: 'n2' }],
    [setBytes(10, 'demo|web||', Buffer.from('ffff', 'hex')), /service/, { kind: 'service' }],
    [setBytes(12, '|n1||', Buffer.from('1205', 'hex')), /node "\|n1\|\|"/, { kind: 'node' }],
    [OpItem.create(), /Unknown kind/, undefined],
  ] as const) {
    const op = decode(item);
    t.match(op, { kind: 'invalid', error: { code: 'KPNG_OP_INVALID', message: problem } });
    t.match(op.kind === 'invalid' && op.target, target);
  }
  t.match(decodeGlobalOp(Buffer.from('0f', 'hex')), { kind: 'invalid' });
});
