import { testPage } from '../support/run-page.ts';

testPage('docs/state-file.md');
