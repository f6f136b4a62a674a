import { testPage } from '../support/run-page.ts';

testPage('docs/how-to/troubleshoot.md');
