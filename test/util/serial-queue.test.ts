import t from 'tap';
import { SerialQueue } from '../../src/util/serial-queue.ts';

t.test('a job starts when the one before has ended, however it ended', async (t) => {
  const queue = new SerialQueue();
  const log: string[] = [];
  const gate = Promise.withResolvers<void>();
  const first = queue.run(async () => {
    log.push('first starts');
    await gate.promise;
    log.push('first ends');
    return 1;
  });
  const second = queue.run(async () => {
    log.push('second');
    throw new Error('broken');
  });
  const third = queue.run(async () => {
    log.push('third');
    return 3;
  });
  await new Promise(setImmediate);
  t.same(log, ['first starts']);
  const idle = queue.idle().then(() => log.push('idle'));
  gate.resolve();
  t.equal(await first, 1);
  await t.rejects(second, { message: 'broken' });
  t.equal(await third, 3);
  await idle;
  t.same(log, ['first starts', 'first ends', 'second', 'third', 'idle']);
});
