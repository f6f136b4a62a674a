/** `npm run man`: writes man/kpng-userspace.1. The date is that of SOURCE_DATE_EPOCH, or today. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { REGISTRY } from '../../src/cli/registry.ts';
import { programVersion } from '../../src/cli/version.ts';
import { manPage } from './man-page.ts';

const folder = join(import.meta.dirname, '..', '..', 'man');
const epoch = process.env['SOURCE_DATE_EPOCH'];
const date = (epoch === undefined ? new Date() : new Date(Number(epoch) * 1000)).toISOString();
mkdirSync(folder, { recursive: true });
writeFileSync(
  join(folder, 'kpng-userspace.1'),
  manPage(REGISTRY, { version: programVersion(), date: date.slice(0, 10) }),
);
