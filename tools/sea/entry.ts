/** Entry point of an executable. Provides the bundled files before any module reads one. */
import { getAsset } from 'node:sea';
import { main } from '../../src/cli/program.ts';
import { provideBundle } from '../../src/util/bundle.ts';
import { ASSETS } from './assets.ts';
import { argumentsFor } from './names.ts';

provideBundle(Object.fromEntries(ASSETS.map((name) => [name, getAsset(name, 'utf8')])));
void main(argumentsFor(process.execPath, process.argv.slice(2))).then(
  // Open handles must not keep a program that has ended.
  (code) => process.exit(code),
);
