import { testPage } from '../support/run-page.ts';

testPage('docs/status.md');
