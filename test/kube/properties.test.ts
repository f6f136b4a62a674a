import * as fc from 'fast-check';
import t from 'tap';
import { loadHasher } from '../../src/api/hash.ts';
import { type Feed, nodeFeed, serviceFeed, sliceFeed } from '../../src/kube/feeds.ts';
import { nameOf } from '../../src/kube/json.ts';
import type { ResourceName } from '../../src/kube/resource.ts';
import { GlobalStore } from '../../src/store/global-store.ts';
import { type KubeObject, endpoint, node, service, slice } from '../support/fake-api/objects.ts';
import { SELECTION, startKubeRig } from '../support/kube-rig.ts';
import { holdsAsync } from '../support/property.ts';

/** A change of one object; `object` undefined: it is gone. */
interface Change {
  readonly resource: Exclude<ResourceName, 'node'>;
  readonly key: string;
  readonly object: KubeObject | undefined;
}

const address = fc.nat(5).map((last) => `10.1.0.${last}`);
const name = fc.constantFrom('web', 'api', 'dns');
const zone = fc.constantFrom('', 'north', 'south');

const serviceChange = fc
  .record({ name, ip: fc.nat(5), there: fc.boolean(), labels: fc.boolean() })
  .map(({ name, ip, there }): Change => {
    const key = `demo/${name}`;
    return { resource: 'services', key, object: there ? service(key, `10.96.0.${ip}`) : undefined };
  });

const sliceChange = fc
  .record({
    slice: fc.constantFrom('a', 'b', 'c', 'd'),
    service: fc.option(name),
    addresses: fc.array(
      fc.record({ address, ready: fc.boolean(), pod: fc.option(fc.constantFrom('p', 'q')), zone }),
      { maxLength: 4 },
    ),
    there: fc.boolean(),
  })
  .map(({ slice: own, service, addresses, there }): Change => {
    const key = `demo/${own}`;
    const endpoints = addresses.map(({ address, ready, pod, zone }) =>
      endpoint(address, {
        conditions: { ready },
        pod,
        zone,
        hints: { forZones: [{ name: zone }] },
      }),
    );
    return {
      resource: 'endpointslices',
      key,
      object: there ? slice(key, endpoints, { service }) : undefined,
    };
  });

const nodeChange = fc
  .record({ name: fc.constantFrom('node-a', 'node-b'), zone, there: fc.boolean() })
  .map(({ name, zone, there }): Change => {
    return { resource: 'nodes', key: name, object: there ? node(name, zone) : undefined };
  });

/** The whole of a store, as far as anyone can see it. */
function contentOf(store: GlobalStore): string {
  const services = store.services.cells().map(({ key, value }) => {
    const endpoints = value?.endpoints;
    return [key, value?.service, endpoints];
  });
  const nodes = store.nodes.cells().map(({ value }) => value);
  return JSON.stringify([services, nodes], (_, value: unknown) =>
    typeof value === 'bigint' ? value.toString() : value,
  );
}

const hasher = await loadHasher();

class Applied {
  readonly store = new GlobalStore({ hasher });
  readonly #feeds: readonly Feed<unknown>[] = [
    serviceFeed(SELECTION),
    sliceFeed(),
    nodeFeed(SELECTION),
  ];

  apply({ resource, key, object }: Change): void {
    const feed = this.#feeds.find((each) => each.name === resource);
    if (feed === undefined) throw new Error(resource);
    const value = object === undefined ? undefined : feed.decode(nameOf(feed.kind, object), object);
    this.store.update((transaction) => feed.change(transaction, key, value));
  }
}

t.test('over a real connection, with cuts, lost history and odd ends, all arrives', async (t) => {
  const rig = await startKubeRig(t);
  await rig.watching();
  const trouble = fc.constantFrom('none', 'none', 'cut', 'compact', 'garbage', 'end', 'bookmark');
  const steps = fc.array(fc.tuple(fc.oneof(serviceChange, sliceChange, nodeChange), trouble), {
    minLength: 1,
    maxLength: 20,
  });
  await holdsAsync(
    t,
    fc.asyncProperty(steps, async (list) => {
      for (const [change, trouble] of list) {
        if (change.object === undefined) rig.api.delete(change.resource, change.key);
        else rig.api.upsert(change.resource, change.object);
        const [watch] = rig.api.watches(change.resource);
        if (trouble === 'cut') rig.api.cut();
        else if (trouble === 'compact') rig.api.compact();
        else if (trouble === 'garbage') watch?.raw('{"type":\n');
        else if (trouble === 'end') watch?.end();
        else if (trouble === 'bookmark') rig.api.bookmark();
        await new Promise(setImmediate);
      }
      const wanted = new Applied();
      for (const resource of ['services', 'endpointslices', 'nodes'] as const) {
        for (const object of rig.api.store.list(resource)) {
          const { namespace, name } = object.metadata;
          const key = namespace === undefined ? name : `${namespace}/${name}`;
          wanted.apply({ resource, key, object });
        }
      }
      const content = contentOf(wanted.store);
      await rig.advanceUntil(() => contentOf(rig.store) === content, 1000);
      return true;
    }),
  );
});
