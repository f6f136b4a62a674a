/** What is read of a watch. */
import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { IncomingMessage } from 'node:http';
import * as fc from 'fast-check';
import t from 'tap';
import { kubeTriggered } from '../../src/kube/events.ts';
import { readLines } from '../../src/kube/body.ts';
import { isOlder } from '../../src/kube/json.ts';
import { type KubeObject, endpoint, slice } from '../support/fake-api/objects.ts';
import { startKubeRig } from '../support/kube-rig.ts';
import { holdsAsync } from '../support/property.ts';
import { collect } from '../support/sockets.ts';
import { systemClock } from '../../src/util/clock.ts';
import { until } from '../support/until.ts';

t.test('however a stream is cut into pieces, the lines are the same', async (t) => {
  await holdsAsync(
    t,
    fc.asyncProperty(
      fc.array(fc.string({ unit: 'grapheme' }).map((text) => text.replaceAll('\n', ''))),
      fc.array(fc.nat(10)),
      async (lines, cuts) => {
        const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(''));
        const got: string[] = [];
        const body = new EventEmitter() as IncomingMessage;
        body.destroy = () => body;
        const limits = { maxBytes: 1000, silenceMs: 1000, totalMs: 1000 };
        const read = readLines('watch', body, limits, systemClock, (some) => got.push(...some));
        let at = 0;
        for (const cut of [...cuts, bytes.length]) {
          body.emit('data', bytes.subarray(at, at + cut));
          at += cut;
        }
        body.emit('end');
        await read;
        assert.deepEqual(
          got,
          lines.filter((line) => line.trim() !== ''),
        );
      },
    ),
  );
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

const KEY = 'endpoints.kubernetes.io/last-change-trigger-time';

function changedAt(at: string, address = '10.1.0.5'): KubeObject {
  const plain = slice('demo/web-x', [endpoint(address)]);
  return { ...plain, metadata: { ...plain.metadata, annotations: { [KEY]: at } } };
}

t.test('changed slices have the time of their cause; lists have none', async (t) => {
  const told = collect(t, kubeTriggered);
  const soon = new Date(Date.now() + 60_000).toISOString();
  const { api, watching } = await startKubeRig(t, {
    prepare: (api) => api.upsert('endpointslices', changedAt(soon)),
  });
  await watching();
  t.same(told, [], 'what was there at the start took no one’s time');
  api.upsert('endpointslices', changedAt('2020-01-01T00:00:00Z', '10.1.0.6'));
  api.upsert('endpointslices', changedAt('not a time', '10.1.0.7'));
  api.upsert('endpointslices', changedAt(soon, '10.1.0.8'));
  await until(() => told.length > 0);
  t.same(told, [{ times: [Date.parse(soon)] }]);
  api.delete('endpointslices', 'demo/web-x');
  api.upsert('endpointslices', slice('demo/web-y', [endpoint('10.1.0.9')]));
  api.upsert('endpointslices', changedAt(soon, '10.1.0.8'));
  await until(() => told.length > 1);
  t.equal(told.flatMap(({ times }) => times).length, 2, 'one that is deleted has none');
});
