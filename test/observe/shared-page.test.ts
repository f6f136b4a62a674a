import t from 'tap';
import { SharedPage } from '../../src/observe/shared-page.ts';

/** A page that is made step by step, and says which one it is. */
function setup() {
  const steps: (() => void)[] = [];
  const seen = { begun: 0, ended: 0 };
  const page = new SharedPage(async function* () {
    const number = (seen.begun += 1);
    try {
      yield `page ${number}`;
      await new Promise<void>((resolve) => steps.push(resolve));
      yield ' all of it';
    } finally {
      seen.ended += 1;
    }
  });
  const get = async (signal = new AbortController().signal): Promise<string> =>
    Buffer.concat(await page.get(signal)).toString();
  const step = async (): Promise<void> => {
    while (steps.length === 0) await new Promise(setImmediate);
    steps.shift()?.();
  };
  return { get, step, seen };
}

t.test('one page at a time; clients that ask meanwhile share the next one', async (t) => {
  const { get, step, seen } = setup();
  const first = [get(), get()];
  await new Promise(setImmediate);
  const second = [get(), get(), get()];
  await new Promise(setImmediate);
  t.equal(seen.begun, 1);
  await step();
  t.strictSame(await Promise.all(first), ['page 1 all of it', 'page 1 all of it']);
  await step();
  t.equal(new Set(await Promise.all(second)).size, 1);
  t.strictSame(seen, { begun: 2, ended: 2 });
});

t.test('a page that no client waits for any more is not made', async (t) => {
  const { get, step, seen } = setup();
  const clients = [new AbortController(), new AbortController(), new AbortController()];
  const [a, b, c] = clients.map(({ signal }) => get(signal));
  await new Promise(setImmediate);
  const later = new AbortController();
  const never = get(later.signal);
  later.abort();
  clients[0]?.abort();
  await step();
  t.equal(await b, 'page 1 all of it', 'another client waits for it');
  await Promise.all([a, c, never]);
  t.strictSame(seen, { begun: 1, ended: 1 });
  const left = new AbortController();
  const unfinished = get(left.signal);
  await new Promise(setImmediate);
  left.abort();
  await step();
  t.equal(await unfinished, '');
  t.strictSame(seen, { begun: 2, ended: 2 });
});

t.test('a page that fails does not stop the next one', async (t) => {
  let fails = true;
  const page = new SharedPage(async function* () {
    if (fails) throw new Error('no');
    yield 'well';
  });
  const { signal } = new AbortController();
  await t.rejects(page.get(signal), { message: 'no' });
  fails = false;
  t.equal(String((await page.get(signal))[0]), 'well');
});
