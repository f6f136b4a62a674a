import t from 'tap';
import { Mailbox } from '../../src/file/mailbox.ts';

t.test('the newest value is taken, once', async (t) => {
  const mailbox = new Mailbox<number>();
  mailbox.put(1);
  mailbox.put(2);
  t.equal(await mailbox.take(), 2);
  const next = mailbox.take();
  mailbox.put(3);
  t.equal(await next, 3);
});

t.test('closing ends the wait, and what was not taken is gone', async (t) => {
  const waiting = new Mailbox<number>();
  const taken = waiting.take();
  waiting.close();
  t.equal(await taken, undefined);
  const full = new Mailbox<number>();
  full.put(1);
  full.close();
  t.equal(await full.take(), undefined);
});
