import t from 'tap';
import { usedMemory } from '../support/sockets.ts';
import { startClientRig } from '../support/kpng-server.ts';
import {
  deleteEndpoint,
  deleteService,
  endpoint,
  reset,
  service,
  setEndpoint,
  setService,
  sync,
} from '../support/messages.ts';
import { until } from '../support/until.ts';

const ROUNDS = 4000;

// Every diff brings a new service and takes away the one before, and all of it goes over one stream.
t.test('memory does not grow with the number of diffs', async (t) => {
  const { server, sink } = await startClientRig(t);
  const stream = await server.answer(reset, sync);
  await sink.next();
  const marks: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    await stream.request();
    const [key, before] = [`d/s-${round}`, `d/s-${round - 1}`];
    stream.send(
      setService(service(key, { annotations: { text: 'x'.repeat(1000) } })),
      setEndpoint(`${key}/pod`, endpoint('10.0.0.1')),
      deleteEndpoint(`${before}/pod`),
      deleteService(before),
      sync,
    );
    const { changed, view } = await sink.next();
    if (changed.length > 2) t.fail(`round ${round} changed ${changed.join()}`);
    if (view.size !== 1) t.fail(`round ${round} has ${view.size} services`);
    if ((round + 1) % (ROUNDS / 4) === 0) marks.push(usedMemory().heapUsed);
  }
  const [, second = 0] = marks;
  // Kept, the services of half the rounds would be more than 2 MB. What is only on its way out, such
  // as buffers of the stream on a busy machine, is gone after a while; what is kept is not.
  const grown = (): number => usedMemory().heapUsed - second;
  await until(() => grown() < 1_000_000, 5000).catch(() => undefined);
  const growth = grown();
  t.ok(growth < 1_000_000, `grew by ${growth} bytes in ${ROUNDS / 2} diffs`);
});
