import t from 'tap';
import { bindFailureLog } from '../../src/observe/bind-failure.ts';
import { captureLog } from '../support/captured-log.ts';
import { until } from '../support/until.ts';

t.test('an address that stays taken is told once, and again when another has it', async (t) => {
  const { log, lines } = await captureLog();
  let program = 'one';
  const holderOf = async () => ({ program, pid: 7, user: 0 });
  const failed = bindFailureLog(log, 'Cannot serve', { host: '127.0.0.1', port: 1 }, holderOf);
  const cause = Object.assign(new Error('taken'), { code: 'EADDRINUSE' });
  for (const retryInMs of [1000, 2000, 4000]) failed(cause, retryInMs);
  program = 'another';
  for (const retryInMs of [8000, 16_000]) failed(cause, retryInMs);
  program = 'a third';
  failed(cause, 30_000);
  await until(() => lines().some(({ retryInMs }) => retryInMs === 30_000));
  t.equal(lines().length, 3);
  t.match(lines(), [
    { level: 'warn', msg: 'Cannot serve', address: '127.0.0.1:1', err: /one/, retryInMs: 1000 },
    { code: 'KPNG_LISTEN_ADDRESS_IN_USE', err: /another/, retryInMs: 8000 },
    { err: /a third/ },
  ]);
});
