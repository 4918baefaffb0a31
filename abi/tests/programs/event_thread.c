/* One thread takes events, and another one polls, which is no mistake, whoever arms and however late the other one polls. */

#include <pthread.h>
#include <semaphore.h>

#include "wrong.h"

enum { MESSAGES = 100 };

static sem_t events;
static volatile int ends;

static void arm(void) {
    EXPECT(ibv_req_notify_cq(cq, 0) == 0);
}

/* As many completions as there are. */
static int take_all(void) {
    struct ibv_wc wc;
    int number = 0;
    while (ibv_poll_cq(cq, 1, &wc) == 1)
        number++;
    return number;
}

static void *take_event(void *none) {
    EXPECT(event_comes());
    return none;
}

/* Another thread polls, arms and polls again, while this one waits. */
static void poll_beside_it(void) {
    pthread_t thread;
    receive_at(b, 1024, 512);
    EXPECT(take_all() == 0);
    arm();
    EXPECT(pthread_create(&thread, NULL, take_event, NULL) == 0);
    wait_a_while(); /* it waits for an event */
    EXPECT(take_all() == 0);
    send_one();
    EXPECT(pthread_join(thread, NULL) == 0);
    poll_both();
}

/* Tells of each event, and of its start. With an argument, it arms first. */
static void *tell(void *arms) {
    for (;;) {
        if (arms)
            arm();
        EXPECT(sem_post(&events) == 0);
        if (ends)
            return NULL;
        EXPECT(event_comes());
    }
}

/* Polls for each event that is told; else arms and polls again. */
static void poll_for_events(int arms) {
    pthread_t thread;
    ends = 0;
    EXPECT(sem_init(&events, 0, 0) == 0);
    if (!arms)
        arm();
    EXPECT(pthread_create(&thread, NULL, tell, arms ? &events : NULL) == 0);
    for (int message = 1; message <= MESSAGES; message++) {
        receive_at(b, 1024, 512);
        send_one();
        for (int left = 2; left > 0;) {
            EXPECT(sem_wait(&events) == 0);
            if (message % 25 == 0)
                usleep(300000); /* it works */
            left -= take_all();
            if (arms)
                continue;
            arm();
            left -= take_all();
        }
    }
    ends = 1;
    receive_at(b, 1024, 512);
    send_one();
    EXPECT(pthread_join(thread, NULL) == 0 && sem_destroy(&events) == 0);
    poll_both();
}

/* Arms with completions in the queue, and polls one now, one after a while. */
static void poll_late(void) {
    pthread_t thread;
    memory[0] = 1;
    receive_at(b, 1024, 512);
    send_one();
    wait_for_data();
    arm();
    EXPECT(pthread_create(&thread, NULL, take_event, NULL) == 0);
    EXPECT(errors_among(1) == 0);
    usleep(300000); /* it works */
    EXPECT(errors_among(1) == 0);
    receive_at(b, 1024, 512);
    send_one();
    EXPECT(pthread_join(thread, NULL) == 0);
    poll_both();
}

int main(void) {
    set_up();
    with_channel();
    connect_both();
    poll_beside_it();
    poll_late();
    poll_for_events(0);
    poll_for_events(1);
    without_channel();
    tear_down();
    return 0;
}
