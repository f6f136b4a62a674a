/** What the parser thread sends of a large service whose endpoints changed, and what the store makes of it. */
import { Readable } from 'node:stream';
import * as fc from 'fast-check';
import t from 'tap';
import { loadHasher } from '../../src/api/hash.ts';
import { writeChanges } from '../../src/file/changes.ts';
import { StateParser } from '../../src/file/parse.ts';
import type { ItemPatch } from '../../src/file/patch.ts';
import { GlobalStore } from '../../src/store/global-store.ts';
import { holdsAsync } from '../support/property.ts';

const KEY = 'demo/web';
const hasher = await loadHasher();

interface Item {
  readonly podname: string;
  readonly endpoint: { readonly ips: { readonly v4: readonly string[] } };
}

function item(podname: string, net = 0): Item {
  const number = Number(podname.replace(/\D/g, ''));
  return { podname, endpoint: { ips: { v4: [`10.${net}.${number >> 8}.${number & 255}`] } } };
}

function text(endpoints: readonly Item[]): string {
  const service = { namespace: 'demo', name: 'web', ports: [{ port: 80 }] };
  return JSON.stringify({ services: [{ service, endpoints }] });
}

/** A parser and a store that it feeds. */
class Feed {
  readonly store = new GlobalStore({ hasher });
  readonly #parser = new StateParser();
  #isFirst = true;

  /** Returns what the parser sends. `times`: how often, as when a text is first read in pieces, then as a whole. */
  async load(endpoints: readonly Item[], times = 1): Promise<string[]> {
    const services = new Set<string>();
    const result = this.#parser.parse(text(endpoints), services);
    if (!result.ok) throw new Error('the text is not valid');
    const { removed, newWarnings, parsedItems } = result;
    const changes = { reset: this.#isFirst, removed, nodes: undefined };
    this.#isFirst = false;
    const counts = { services: 1, nodes: 0, parsedItems, newWarnings };
    const outcome = Promise.resolve({ ok: true, ...counts, changes } as const);
    const parts = Array.from({ length: times }, () => [[], [...services]]).flat();
    await this.store.updateInParts((transaction) =>
      writeChanges(this.store, transaction, { parts: Readable.from(parts), outcome }),
    );
    return [...services];
  }

  /** The pods in the store. */
  pods(): string[] {
    const { endpoints = [] } = this.store.services.get(KEY) ?? {};
    return endpoints.map(({ podName, endpoint }) => `${podName} ${endpoint?.ips?.v4.join()}`);
  }
}

const PODS = Array.from({ length: 1500 }, (_, n) => item(`p${n}`));

/** The pods that are sent when the list changes. */
async function sent(after: readonly Item[]): Promise<unknown> {
  const feed = new Feed();
  await feed.load(PODS);
  const [patch] = (await feed.load(after)).map((each) => JSON.parse(each) as ItemPatch);
  return patch?.patch.flatMap((part) => ('from' in part ? [] : part.podname));
}

t.test('sends only new and changed endpoints', async (t) => {
  const moved = item('p7', 9);
  t.strictSame(await sent(PODS.with(7, moved)), ['p7'], 'one changed');
  t.strictSame(await sent(PODS.toSpliced(5, 1)), [], 'one removed');
  t.strictSame(await sent(PODS.toSpliced(5, 0, item('n1', 9))), ['n1'], 'one added');
  const several = PODS.toSpliced(1200, 2).with(7, moved).toSpliced(100, 0, item('n2', 9));
  t.strictSame(await sent(several), ['p7', 'n2'], 'all of that, far from each other');
  t.strictSame(await sent(PODS.toReversed()), [], 'in another order');
});

t.test('after any changes, the store has the newest endpoints in order', async (t) => {
  const edit = fc.record({
    at: fc.nat(1600),
    removed: fc.nat(3),
    added: fc.array(fc.tuple(fc.nat(1600), fc.nat(2)), { maxLength: 3 }),
  });
  const lists = fc.array(fc.array(edit, { maxLength: 4 }), { maxLength: 4 });
  await holdsAsync(
    t,
    fc.asyncProperty(lists, fc.integer({ min: 1, max: 2 }), async (all, times) => {
      const feed = new Feed();
      let list = PODS;
      for (const edits of [[], ...all]) {
        for (const { at, removed, added } of edits) {
          list = list.toSpliced(at, removed, ...added.map(([n, net]) => item(`p${n}`, net)));
        }
        await feed.load(list, times);
        const wanted = list.map(({ podname, endpoint }) => `${podname} ${endpoint.ips.v4.join()}`);
        if (feed.pods().join() !== wanted.join()) return false;
      }
      return true;
    }),
  );
});

t.test('of unchanged endpoints the store keeps the objects', async (t) => {
  const feed = new Feed();
  await feed.load(PODS);
  const before = feed.store.services.get(KEY)?.endpoints ?? [];
  await feed.load(PODS.with(7, item('p7', 9)));
  const after = feed.store.services.get(KEY)?.endpoints ?? [];
  t.strictSame(
    after.flatMap((each, index) => (each === before[index] ? [] : [index])),
    [7],
  );
});

t.test('a text with errors in between changes nothing', async (t) => {
  const feed = new Feed();
  await feed.load(PODS);
  const twice = [...PODS, { ...item('p1'), podname: 5 } as unknown as Item];
  await t.rejects(feed.load(twice));
  await feed.load(PODS.toSpliced(3, 1));
  t.equal(feed.pods().length, PODS.length - 1);
  await feed.load(PODS);
  t.equal(feed.pods()[3], 'p3 10.0.0.3');
});
