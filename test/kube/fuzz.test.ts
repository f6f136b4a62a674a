/** Lists and events of a hostile API server, as far as they get: read, mapped, stored and passed on. */
import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import * as fc from 'fast-check';
import t from 'tap';
import { loadHasher } from '../../src/api/hash.ts';
import { systemClock } from '../../src/util/clock.ts';
import { KubeFailure } from '../../src/kube/failure.ts';
import { readLines } from '../../src/kube/body.ts';
import { type Json, isObject, isOlder, keyOf } from '../../src/kube/json.ts';
import { DEFAULT_KUBE_LIMITS } from '../../src/kube/limits.ts';
import { listAll, triggerTimes, watchFrom } from '../../src/kube/list-watch.ts';
import { type Feed, nodeFeed, ownNode, serviceFeed, sliceFeed } from '../../src/kube/map.ts';
import type { Selection } from '../../src/kube/resource.ts';
import { GlobalStore } from '../../src/store/global-store.ts';
import * as objects from '../support/fake-api/objects.ts';
import { checkPassedOn, contentOf } from '../support/api-rig.ts';
import { SELECTION, startKubeRig } from '../support/kube-rig.ts';
import { mutations, holdsAsync } from '../support/property.ts';

const OBJECTS = [
  objects.service('demo/web', '10.96.0.10', { labels: { app: 'web' } }),
  objects.slice('demo/web-x', [
    objects.endpoint('10.1.0.5', { zone: 'north', hints: { forZones: [{ name: 'north' }] } }),
  ]),
  objects.node('n1', 'north'),
];
const hasher = await loadHasher();

/** Anything where something of the API is expected. */
const odd = fc.oneof(
  fc.constantFrom(null, '', '\ud800', '__proto__', 'Local', 'None', -1, 1.5, 2 ** 40, true, [], {}),
  fc.string({ unit: 'binary', maxLength: 4 }),
);

/** An object of the API in which some values are something else. */
const oddObjects = fc
  .tuple(fc.constantFrom(...OBJECTS), fc.array(fc.tuple(fc.nat(60), odd), { maxLength: 5 }))
  .map(([object, changes]) => {
    let at = 0;
    const change = (value: unknown): unknown => {
      at += 1;
      const replaced = changes.find(([place]) => place === at);
      if (replaced !== undefined) return replaced[1];
      if (Array.isArray(value)) return value.map(change);
      if (typeof value !== 'object' || value === null) return value;
      return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, change(each)]));
    };
    return change(object);
  })
  .filter(isObject);

class World {
  readonly store = new GlobalStore({ hasher });
  readonly #feeds: readonly Feed<never>[];

  constructor(
    selection: Selection = { ...SELECTION, serviceLabels: ['*'], nodeAnnotations: ['[a-z]*'] },
  ) {
    const feeds = [serviceFeed(selection), sliceFeed(), nodeFeed(selection)];
    this.#feeds = feeds as unknown as Feed<never>[];
  }

  /** `resource`: what it is of. Default: it is taken for each of them. */
  take(raw: Json, gone = false, resource?: string): void {
    for (const feed of this.#feeds) {
      if (feed.name !== (resource ?? feed.name)) continue;
      const key = keyOf(feed.kind, raw);
      if (typeof key !== 'string') continue;
      const value = gone ? undefined : feed.decode(raw);
      this.store.update((transaction) => feed.change(transaction, key, value));
    }
    ownNode('n1').decode(raw);
  }

  /** Throws when clients could not take it. */
  passOn(): void {
    this.store.update((transaction) => transaction.setComplete());
    checkPassedOn(this.store);
  }
}

t.test('objects with any field values are stored and passed on, or refused', async (t) => {
  const property = fc.asyncProperty(fc.array(oddObjects, { maxLength: 6 }), async (raws) => {
    const world = new World();
    for (const raw of raws) world.take(raw);
    world.passOn();
  });
  await holdsAsync(t, property);
});

const EVENTS = OBJECTS.flatMap((object) =>
  ['ADDED', 'DELETED', 'BOOKMARK', 'ERROR'].map((type) =>
    Buffer.from(`${JSON.stringify({ type, object })}\n`),
  ),
);
const PAGES = OBJECTS.map((object) =>
  Buffer.from(JSON.stringify({ metadata: { resourceVersion: '7' }, items: [object, object] })),
);

/** An API whose answers are these bytes, in pieces. */
function answering(bytes: Buffer, pieces: number) {
  const size = Math.max(1, Math.ceil(bytes.length / pieces));
  return {
    limits: { ...DEFAULT_KUBE_LIMITS, maxListPages: 3 },
    clock: systemClock,
    get: () => {
      const cut = Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) =>
        bytes.subarray(i * size, (i + 1) * size),
      );
      return Promise.resolve(Readable.from(cut, { objectMode: false }) as IncomingMessage);
    },
  };
}

const { signal } = new AbortController();

const resource = serviceFeed(SELECTION);

// The time limit of `holds` ends the search.
fc.configureGlobal({ numRuns: 100_000 });

const events = fc
  .array(fc.oneof(fc.constantFrom(...EVENTS), mutations(EVENTS)), { maxLength: 4 })
  .map((parts) => Buffer.concat(parts));
type Api = ReturnType<typeof answering>;
for (const [verb, data, read] of [
  [
    'list',
    mutations(PAGES),
    (world: World, api: Api) => listAll(resource, api, signal, (raw) => world.take(raw)),
  ],
  [
    'watch',
    events,
    (world: World, api: Api) =>
      watchFrom(resource, api, {
        signal,
        random: () => 0.5,
        version: '5',
        onOpen: () => {},
        onEvents: (all) => {
          triggerTimes(all, 0);
          for (const { type, raw } of all) world.take(raw, type === 'DELETED');
        },
      }),
  ],
] as const) {
  t.test(`any data of a ${verb} is read, or fails as a ${verb} does`, async (t) => {
    const property = fc.asyncProperty(
      data,
      fc.integer({ min: 1, max: 50 }),
      async (sent, pieces) => {
        const world = new World();
        try {
          await read(world, answering(sent, pieces));
        } catch (error) {
          if (!(error instanceof KubeFailure)) throw error;
        }
        world.passOn();
      },
    );
    await holdsAsync(t, property);
  });
}

t.test('however a stream is cut into pieces, the lines are the same', async (t) => {
  const text = fc.string({ unit: 'grapheme' }).map((each) => each.replaceAll('\n', ''));
  const property = fc.asyncProperty(fc.array(text), fc.array(fc.nat(10)), async (lines, cuts) => {
    const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(''));
    const got: string[] = [];
    let at = 0;
    const pieces = [...cuts, bytes.length].map((cut) => bytes.subarray(at, (at += cut)));
    const body = Readable.from(
      pieces.filter(({ length }) => length > 0),
      { objectMode: false },
    );
    const limits = { maxBytes: 1000, silenceMs: 60_000, totalMs: 60_000 };
    const onLines = (some: readonly string[]): unknown => got.push(...some);
    await readLines('', body as IncomingMessage, limits, systemClock, onLines);
    assert.deepEqual(
      got,
      lines.filter((line) => line.trim() !== ''),
    );
  });
  await holdsAsync(t, property);
});

t.test('numbers of any length are compared; anything else is in no order', async (t) => {
  t.ok(isOlder('9', '10'));
  t.ok(isOlder('9007199254740992', '9007199254740993'));
  t.notOk(isOlder('10', '9'));
  t.notOk(isOlder('10', '10'));
  for (const odd of ['', 'abc', '1a', '-1']) {
    t.notOk(isOlder(odd, '10'));
    t.notOk(isOlder('1', odd));
  }
});

const RESOURCES = ['services', 'endpointslices', 'nodes'] as const;

/** A change of one object, by its resource and key; undefined: it is gone. */
type Change = readonly [(typeof RESOURCES)[number], string, objects.KubeObject | undefined];

const [FIRST, ...OTHERS] = ['north', 'south', '', 'north'].map((zone, index) => {
  const parts = { zone, conditions: { ready: index > 0 }, hints: { forZones: [{ name: zone }] } };
  return objects.endpoint(`10.1.0.${index % 3}`, { ...parts, pod: index < 2 ? 'p' : null });
});
const CHANGES = ['demo/web', 'demo/web-x', 'demo/api', 'demo/api-x', 'demo/x'].flatMap(
  (key): Change[] => [
    ['services', key, undefined],
    ['services', key, objects.service(key, '10.96.0.1')],
    ['services', key, objects.service(key, '10.96.0.2')],
    ['endpointslices', key, undefined],
    ['endpointslices', key, objects.slice(key, [FIRST])],
    ['endpointslices', key, objects.slice(key, OTHERS)],
    ['endpointslices', key, objects.slice(key, [], { service: null })],
    ['nodes', 'node-a', undefined],
    ['nodes', 'node-a', objects.node('node-a', key)],
  ],
);

t.test('over a real connection, with cuts, lost history and odd ends, all arrives', async (t) => {
  const rig = await startKubeRig(t);
  await rig.watching();
  const trouble = fc.constantFrom('none', 'none', 'cut', 'compact', 'garbage', 'end', 'bookmark');
  const steps = fc.array(fc.tuple(fc.constantFrom(...CHANGES), trouble), {
    minLength: 1,
    maxLength: 20,
  });
  await holdsAsync(
    t,
    fc.asyncProperty(steps, async (list) => {
      for (const [[resource, key, object], trouble] of list) {
        if (object === undefined) rig.api.delete(resource, key);
        else rig.api.upsert(resource, object);
        const [watch] = rig.api.watches(resource);
        if (trouble === 'cut') rig.api.cut();
        else if (trouble === 'compact') rig.api.compact();
        else if (trouble === 'garbage') watch?.raw('{"type":\n');
        else if (trouble === 'end') watch?.end();
        else if (trouble === 'bookmark') rig.api.bookmark();
        await new Promise(setImmediate);
      }
      const wanted = new World(SELECTION);
      for (const resource of RESOURCES) {
        for (const object of rig.api.list(resource)) wanted.take(object, false, resource);
      }
      wanted.passOn();
      const content = contentOf(wanted.store).join('\n');
      await rig.advanceUntil(() => contentOf(rig.store).join('\n') === content, 1000);
      return true;
    }),
  );
});
