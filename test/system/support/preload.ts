/**
 * Loaded before the program (`--import`): it compares all of its rules five times a second, has five seconds for a trial, and USR2
 * ends the next worker of the engine as a crash would.
 */
import { isMainThread } from 'node:worker_threads';
import { FULL_AUDIT, IPTABLES_AUDIT, ROUTE_AUDIT, TRIAL } from '../../../src/portal/bounds.ts';
import { Pool } from '../../../src/proxysocket/pool/pool.ts';

if (isMainThread) {
  for (const audit of [FULL_AUDIT, IPTABLES_AUDIT, ROUTE_AUDIT]) {
    Object.assign(audit, { intervalMs: 200, goalMs: 200 });
  }
  TRIAL.limitMs = 5000;
  const start = Pool.start.bind(Pool);
  let next = 0;
  Pool.start = async (options) => {
    const pool = await start(options);
    process.on('SIGUSR2', () => void pool.loseWorker(next++));
    return pool;
  };
}
