/** A change of a few endpoints of very many is sent to workers as the difference. */
import { inspect } from 'node:util';
import t from 'tap';
import { endpointsAfter, withPatches } from '../../../src/proxysocket/core/endpoint-patch.ts';
import type { EndpointSpec } from '../../../src/proxysocket/spec.ts';
import { linuxTest } from '../../support/linux-sys.ts';
import { endpoints, serving, WEB } from '../../support/pool-rig.ts';
import { endpointAt, namedServer, request } from '../../support/tcp-peers.ts';
import { tcpSpec } from '../../support/tcp-rig.ts';

function spec(n: number, net = 0): EndpointSpec {
  return endpointAt(9, `127.${net + 1}.${n >> 8}.${n & 255}`);
}

const MANY = Array.from({ length: 2000 }, (_, n) => spec(n));

function patched(before: readonly EndpointSpec[], endpoints: readonly EndpointSpec[]) {
  const change = { kind: 'endpoints', name: WEB, endpoints } as const;
  return withPatches([change], () => tcpSpec(before))[0];
}

t.test('has only what differs', async (t) => {
  const added = spec(1, 1);
  const flagged = { ...MANY[1999], external: false } as EndpointSpec;
  const after = [...MANY.slice(1, 7), ...MANY.slice(8, 1999), added, flagged];
  const change = patched(MANY, after);
  t.strictSame(change, {
    kind: 'patch',
    name: WEB,
    removed: [MANY[0], MANY[7]],
    set: [added, flagged],
  });
  if (change?.kind !== 'patch') throw new Error(`not a patch: ${inspect(change)}`);
  const twice = endpointsAfter(endpointsAfter(MANY, change), change);
  t.strictSame(new Set(twice), new Set(after));
});

t.test('few endpoints, many differences and drains are sent as they are', async (t) => {
  const kindOf = (before: readonly EndpointSpec[], after: readonly EndpointSpec[]) =>
    patched(before, after)?.kind;
  t.equal(kindOf(MANY.slice(0, 500), MANY.slice(0, 499)), 'endpoints');
  const equal = MANY.map((each) => ({ ...each }));
  t.equal(kindOf(MANY, equal), 'endpoints');
  t.equal(kindOf(MANY, MANY.with(3, { ...spec(3), drained: ['internal'] })), 'endpoints');
});

linuxTest('workers have the endpoints of the newest list', async (t) => {
  let list: readonly EndpointSpec[] = MANY;
  const { pool, port } = await serving(t, list, { workers: 2 });
  const lists = [
    list.toSpliced(5, 1),
    list.toSpliced(5, 1).toSpliced(100, 1, spec(1, 1), spec(2, 1)),
    list.with(7, { ...spec(7), external: false }),
    list.slice(0, 1500),
  ];
  for (const each of lists) {
    await pool.apply([endpoints(...each)]);
    list = each;
    const { endpoints: found } = await pool.inspect({ servicePorts: [WEB], maxConnections: 0 });
    const texts = found.map(({ endpoint }) => endpoint).sort();
    t.strictSame(texts, list.map(({ address, port }) => `${address}:${port}`).sort());
    t.match(pool.snapshot(), [{ endpoints: list.length }]);
  }
  const server = await namedServer(t, 'there');
  // All others are not used for this traffic.
  const others = list.map((each) => Object.assign({}, each, { internal: false }));
  await pool.apply([endpoints(...others)]);
  await pool.apply([endpoints(...others, server.endpoint)]);
  t.equal(await request(t, port), 'there');
});
