import t from 'tap';
import { ProcessDescriptors, processDescriptorLimit } from '../../src/proxysocket/descriptors.ts';
import { limitChanged } from '../../src/proxysocket/events.ts';
import { LimitSignal } from '../../src/proxysocket/limit-signal.ts';
import { collect } from '../support/sockets.ts';

t.test('the limit of the process', (t) => {
  const limits = (soft: string): string =>
    `Limit                     Soft Limit           Hard Limit           Units\n` +
    `Max open files            ${soft.padEnd(20)} 1048576              files\n`;
  t.equal(
    processDescriptorLimit(() => limits('20000')),
    20_000,
  );
  t.equal(
    processDescriptorLimit(() => limits('unlimited')),
    65_536,
  );
  t.equal(
    processDescriptorLimit(() => 'something else'),
    65_536,
  );
  const missing = (): string => {
    throw new Error('ENOENT');
  };
  t.equal(processDescriptorLimit(missing), 65_536);
  t.ok(processDescriptorLimit() > 0);
  t.end();
});

t.test('relays leave the reserve alone, listeners use a part of it', (t) => {
  const descriptors = new ProcessDescriptors({ limit: 100, reserve: 40 });
  t.equal(descriptors.capacity, 60);
  t.ok(descriptors.take(58));
  t.notOk(descriptors.take(3));
  t.ok(descriptors.take(2));
  t.equal(descriptors.used, 60);

  let listeners = 0;
  while (descriptors.hold()) listeners += 1;
  t.equal(listeners, 30, 'a quarter of the reserve is left');
  t.equal(descriptors.capacity, 30, 'and they count against what relays may have');
  descriptors.give(60);
  t.notOk(descriptors.take(31));
  t.ok(descriptors.take(30));
  descriptors.drop();
  t.ok(descriptors.take(1));
  t.end();
});

t.test('a limit is told when reached, and when left for good', (t) => {
  const changes = collect(t, limitChanged);
  const descriptors = new ProcessDescriptors({ limit: 100, reserve: 0 });
  t.ok(descriptors.take(100));
  t.same(changes, [], 'using all is not reaching it: nothing was refused');
  t.notOk(descriptors.take(1));
  t.notOk(descriptors.take(1));
  t.same(changes, [{ limit: 'reserved-descriptors', value: 100, reached: true }]);
  for (let index = 0; index < 5; index += 1) descriptors.give(1);
  t.equal(changes.length, 1, '95 % is still there');
  descriptors.give(1);
  t.same(changes[1], { limit: 'reserved-descriptors', value: 100, reached: false });
  descriptors.give(50);
  t.equal(changes.length, 2);
  t.end();
});

t.test('without anybody listening the state is kept all the same', (t) => {
  const signal = new LimitSignal('backlog', () => 10);
  t.notOk(signal.reached);
  signal.freed(0);
  signal.refused();
  t.ok(signal.reached);
  signal.freed(10);
  t.ok(signal.reached);
  signal.freed(9);
  t.notOk(signal.reached);
  t.end();
});
