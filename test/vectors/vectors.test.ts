/**
 * The vectors of kpng's behaviour, V1 to V22: each has tests, whose names say whether they show that it is
 * kept or where it is deliberately different, and README.md beside it says the same of all of them.
 */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { tableRows } from '../support/markdown.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const VECTORS = Array.from({ length: 22 }, (_, index) => `V${index + 1}`);

interface VectorTest {
  readonly file: string;
  readonly vector: string;
  /** What stands in brackets behind the vector. */
  readonly marks: readonly string[];
}

/** Every test whose name begins with a vector. */
function vectorTests(): VectorTest[] {
  return globSync('test/**/*.test.ts', { cwd: ROOT }).flatMap((file) => {
    const source = readFileSync(join(ROOT, file), 'utf8');
    const names = source.matchAll(/\.test\(\s*(['"`])(V\d+)\b(?: \(([^)]*)\))?/g);
    return [...names].map(([, , vector = '', marks = '']) => ({
      file,
      vector,
      marks: marks.split(', '),
    }));
  });
}

const tests = vectorTests();

t.test('every test of a vector says whether it is kept or different', async (t) => {
  const unmarked = tests.filter(
    ({ marks }) => !marks.every((mark) => mark === 'kept' || mark === 'different'),
  );
  t.strictSame(unmarked, []);
  t.strictSame(
    [...new Set(tests.map(({ vector }) => vector))].filter((name) => !VECTORS.includes(name)),
    [],
    'there are no others',
  );
});

t.test('test/vectors/README.md agrees for every vector', async (t) => {
  const page = readFileSync(join(ROOT, 'test/vectors/README.md'), 'utf8');
  const documented = tableRows(page, 'The vectors of kpng').map(([vector, , kept]) => [
    vector,
    kept?.replace(/[,;:].*/, ''),
  ]);
  const shown = VECTORS.map((vector) => {
    const ofVector = tests.filter((each) => each.vector === vector);
    const marks = new Set(ofVector.flatMap((each) => each.marks));
    const [kept, different] = [marks.has('kept'), marks.has('different')];
    if (kept && different) return [vector, 'in part'];
    return [vector, kept ? 'yes' : different ? 'no' : 'has no test'];
  });
  t.strictSame(documented, shown);
});
