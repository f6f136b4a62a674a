// A symbolic link that was made without an error is there.
import { lstatSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const folder = mkdtempSync(join(tmpdir(), 'links-'));
symlinkSync('target', join(folder, 'link'));
const stats = lstatSync(join(folder, 'link'), { throwIfNoEntry: false });
rmSync(folder, { recursive: true });
process.stdout.write(`${stats?.isSymbolicLink() ? 'same' : 'differs: the link is not there'}\n`);
