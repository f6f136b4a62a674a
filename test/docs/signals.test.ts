import { testPage } from '../support/run-page.ts';

testPage('docs/reference/signals.md');
