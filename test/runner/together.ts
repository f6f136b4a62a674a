/** Runs the test files of the JSON array KPNG_TEST_FILES in this process. tap names its folders after the arguments. */
import { resolve } from 'node:path';

for (const file of JSON.parse(process.env['KPNG_TEST_FILES'] ?? '[]') as string[]) {
  await import(resolve(file));
}
