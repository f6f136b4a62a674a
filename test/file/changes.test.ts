/** What the parser thread hands over of a service whose endpoints have changed, and what the store makes of it. */
import * as fc from 'fast-check';
import t from 'tap';
import type { EndpointInfo } from '../../src/api/generated/globalv1/api.ts';
import { loadHasher } from '../../src/api/hash.ts';
import { stateChanges, StateWriter, type StateChange } from '../../src/file/changes.ts';
import type { GlobalState } from '../../src/store/global-state.ts';
import { GlobalStore } from '../../src/store/global-store.ts';
import { anonymous, pod, sliceOf, type Info } from '../support/cluster.ts';
import { service } from '../support/messages.ts';
import { holdsAsync } from '../support/property.ts';

const KEY = 'demo/web';
const hasher = await loadHasher();

function stateOf(infos: readonly Info[]): GlobalState {
  const { endpoints } = sliceOf(KEY, 'web', infos);
  const services = new Map([[KEY, { key: KEY, service: service(KEY), endpoints }]]);
  return { services, nodes: new Map() };
}

function changesBetween(before: readonly Info[], after: readonly Info[]): StateChange[] {
  return [...stateChanges(stateOf(before), stateOf(after))];
}

const some = fc.array(
  fc.oneof(
    fc.tuple(fc.nat(9), fc.nat(2)).map(([n, net]) => pod(`p${n}`, `10.0.${net}.${n}`)),
    fc.nat(3).map((n) => anonymous(`10.1.0.${n}`)),
  ),
  { maxLength: 12 },
);

t.test('after any changes, the store has the newest endpoints in order', async (t) => {
  await holdsAsync(
    t,
    fc.asyncProperty(fc.array(some, { maxLength: 4 }), async (lists) => {
      const store = new GlobalStore({ hasher });
      const writer = new StateWriter();
      let before: GlobalState | undefined;
      for (const list of [[], ...lists]) {
        const after = stateOf(list);
        const changes = [...stateChanges(before, after)];
        await store.updateInParts((transaction) => writer.write(transaction, changes));
        before = after;
        const names = ({ podName, endpoint }: Info | EndpointInfo) =>
          `${podName} ${endpoint?.ips?.v4?.join()}`;
        const stored = store.services.get(KEY)?.endpoints.map(({ info }) => names(info));
        if (stored?.join(', ') !== list.map(names).join(', ')) return false;
      }
      return true;
    }),
  );
});

t.test('passes on only new or changed endpoints', async (t) => {
  const pods = Array.from({ length: 3000 }, (_, n) => pod(`p${n}`, `10.0.${n >> 8}.${n & 255}`));
  const moved = pod('p7', '10.9.0.7');
  const sent = (after: readonly Info[]): unknown =>
    changesBetween(pods, after).flatMap((change) =>
      change.kind === 'endpoints' ? change.endpoints.map(({ podName }) => podName) : [],
    );
  t.strictSame(sent(pods.with(7, moved)), ['p7'], 'one changed');
  t.strictSame(sent(pods.toSpliced(5, 1)), [], 'one removed');
  t.strictSame(sent(pods.toSpliced(5, 0, pod('new', '10.9.0.1'))), ['new'], 'one added');
  const several = pods.toSpliced(2000, 2).with(7, moved).toSpliced(100, 0, pod('a', '10.9.0.2'));
  t.strictSame(sent(several), ['p7', 'a'], 'all of that, far from each other');
  t.strictSame(sent([...pods.slice(9), pods[0] ?? {}]), ['p0'], 'one that has moved to the end');
  t.equal((sent(pods.toReversed()) as string[]).length < pods.length, true, 'in any order');
});

t.test('as many changes, far from each other, as a call has no room for arguments', async (t) => {
  const pods = (net: number, count: number): Info[] =>
    Array.from({ length: count }, (_, n) =>
      pod(`p${n}`, n % 2 === 0 ? `10.${net}.0.1` : '10.0.0.2'),
    );
  const [before, after] = [stateOf(pods(1, 140_000)), stateOf(pods(2, 140_000))];
  const store = new GlobalStore({ hasher });
  const writer = new StateWriter();
  for (const changes of [stateChanges(undefined, before), stateChanges(before, after)]) {
    const steps = [...changes];
    await store.updateInParts((transaction) => writer.write(transaction, steps));
  }
  const stored = store.services.get(KEY)?.endpoints ?? [];
  t.equal(stored.length, 140_000);
  t.equal(stored.at(-2)?.info.endpoint?.ips?.v4[0], '10.2.0.1');
});
