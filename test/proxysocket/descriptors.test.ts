import t from 'tap';
import {
  defaultReserve,
  ProcessDescriptors,
  processDescriptorLimit,
} from '../../src/proxysocket/core/descriptors.ts';
import { limitChanged } from '../../src/proxysocket/events.ts';
import { collect } from '../support/sockets.ts';

t.test('the limit of the process', (t) => {
  const limits = (soft: string): string =>
    `Limit                     Soft Limit           Hard Limit           Units\n` +
    `Max open files            ${soft.padEnd(20)} 1048576              files\n`;
  const missing = (): string => {
    throw new Error('ENOENT');
  };
  for (const [read, expected] of [
    [() => limits('20000'), 20_000],
    [() => limits('unlimited'), 65_536],
    [() => 'something else', 65_536],
    [missing, 65_536],
  ] as const)
    t.equal(processDescriptorLimit(read), expected);
  t.ok(processDescriptorLimit() > 0);
  t.end();
});

t.test('the default reserve leaves something to clients, whatever the limit', (t) => {
  const limits = [1_048_576, 1024, 1000, 512, 256, 200, 128, 100, 64, 20, 1, 0];
  t.same(limits.map(defaultReserve), [256, 256, 250, 128, 64, 64, 64, 50, 32, 10, 0, 0]);
  for (const limit of limits.slice(0, -2)) {
    const descriptors = new ProcessDescriptors({ limit, reserve: defaultReserve(limit) });
    t.ok(
      descriptors.acquireListener() && descriptors.acquire(2),
      `a connection with a limit of ${limit}`,
    );
  }
  t.end();
});

t.test('an eighth is for UDP while there is a UDP listener', (t) => {
  const descriptors = new ProcessDescriptors({ limit: 101, reserve: 20 });
  t.ok(descriptors.acquireListener('UDP'));
  t.ok(descriptors.acquire(70, 'TCP'));
  t.notOk(descriptors.acquire(2, 'TCP'), 'ten are kept');
  t.equal(descriptors.used, 70);
  for (let session = 0; session < 10; session += 1) t.ok(descriptors.acquire(1, 'UDP'));
  t.notOk(descriptors.acquire(1, 'UDP'));
  descriptors.release(2, 'TCP');
  t.ok(descriptors.acquire(1, 'UDP'), 'more than the share, when there is room');
  t.notOk(descriptors.acquire(2, 'TCP'));
  descriptors.release(11, 'UDP');
  t.ok(descriptors.acquire(2, 'TCP'));
  t.notOk(descriptors.acquire(2, 'TCP'), 'the share is kept again');
  descriptors.releaseListener('UDP');
  t.ok(descriptors.acquire(11, 'TCP'), 'all 81');
  t.notOk(descriptors.acquire(1, 'TCP'));
  t.end();
});

t.test('each protocol reports its own limit, without flapping', (t) => {
  const changes = collect(t, limitChanged);
  const descriptors = new ProcessDescriptors({ limit: 101, reserve: 20 });
  descriptors.acquireListener('UDP');
  const limit = 'reserved-descriptors';
  t.ok(descriptors.acquire(70));
  for (let client = 0; client < 5; client += 1) {
    t.notOk(descriptors.acquire(2));
    descriptors.release(2);
    t.ok(descriptors.acquire(2));
  }
  t.same(changes, [{ limit, value: 70, reached: true }]);
  descriptors.release(10);
  t.same(changes.at(-1), { limit, value: 70, reached: false });

  while (descriptors.acquireListener());
  t.same(changes.at(-1), { limit, value: 36, reached: true });
  const { length } = changes;
  descriptors.releaseListener();
  t.ok(descriptors.acquireListener());
  t.notOk(descriptors.acquireListener());
  t.equal(changes.length, length);
  t.end();
});
