import t from 'tap';
import { type Problem, ProblemBook } from '../../src/proxier/problems.ts';

function book() {
  const told: string[] = [];
  const subject = new ProblemBook((kind, { message, count }) =>
    told.push(`${kind} ${message} ${count}`),
  );
  const note = (key: string, count: number): void => {
    const problem: Problem = {
      code: 'KPNG_LISTEN_FAILED',
      message: key,
      servicePort: undefined,
      count,
    };
    subject.note(key, problem);
  };
  return { subject, told, note };
}

t.test('a problem is told when it comes up and when it is over, and no more', async (t) => {
  const { subject, told, note } = book();
  note('a', 1);
  note('a', 1);
  note('b', 1);
  subject.note('a', undefined);
  subject.note('a', undefined);
  note('b', 0);
  t.same(told, ['appeared a 1', 'appeared b 1', 'gone a 1', 'gone b 1']);
  t.same(subject.list(), []);
});

t.test('it is told again when it has doubled or halved', async (t) => {
  const { subject, told, note } = book();
  for (const count of [10, 11, 19, 20, 21, 11, 10, 6, 5, 1]) note('a', count);
  t.same(told, ['appeared a 10', 'changed a 20', 'changed a 10', 'changed a 5', 'changed a 1']);
  note('a', 1);
  t.equal(told.length, 5);
  t.ok(subject.has('a'));
  t.notOk(subject.has('b'));
});

t.test('the list has the present numbers, told or not', async (t) => {
  const { subject, note } = book();
  note('a', 10);
  note('a', 13);
  t.same(
    subject.list().map(({ count }) => count),
    [13],
  );
});
