# One image for web, worker and migrate: the command says which.
FROM python:3.11-slim AS build
WORKDIR /srv/tidings
COPY requirements.txt .
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --require-hashes -r requirements.txt

FROM node:22-slim AS console
WORKDIR /srv/tidings/console
COPY console/package.json console/package-lock.json ./
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY console ./
COPY docs/examples ../docs/examples
RUN npm run build

FROM python:3.11-slim
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOST=0.0.0.0
WORKDIR /srv/tidings
COPY --from=build /opt/venv /opt/venv
COPY schema.sql ./
COPY app ./app
COPY --from=console /srv/tidings/app/web/dist ./app/web/dist
COPY workers ./workers
# A sandbox keeps its database in data/; give it a volume, or nothing survives the container.
RUN useradd --system --home-dir /srv/tidings tidings && install -d -o tidings data
USER tidings
VOLUME /srv/tidings/data
EXPOSE 8000
# For web and run; a worker serves nothing: start it with --no-healthcheck.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ.get('PORT', '8000') + '/healthz', timeout=2)"]
# Exec form: SIGTERM reaches the process, which finishes what is in hand within ten seconds.
CMD ["python", "-m", "app", "run"]
